"""Which PodGroups of Kubernetes start together, as the CompositePodGroups above them say.

The unit of a PodGroup (`fluxqueue.queue.model.sources.composite_groups`) changes with every object of its
tree: with a parent that comes late, or is deleted. A pod that has a slot stays with the workload of that
slot, whatever its tree says by then.

A tree is read once, and again after any group of its namespace changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.gang_objects import GangObjects, Lookup, Readable
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.sources.composite_groups import (
    COMPOSITE_POD_GROUPS,
    NodeKey,
    Survey,
    Unit,
    survey,
)
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS, in_domain, parent_of_group

__all__ = ["CompositeTrees"]

_SOURCES = {source.kind: source for source in (NATIVE_POD_GROUPS, COMPOSITE_POD_GROUPS)}
_BY_PARENT = "parent"


class CompositeTrees:
    """Answers for a replica, from its caches.

    Attributes
    ----------
    holder_of
        Returns the group in whose slot a pod is; None if it is in none.
    held_by
        Returns the uids of the pods in the slots of a group. A leader sets both.
    """

    def __init__(self, objects: GangObjects) -> None:
        self._objects = objects
        self._caches = {kind: objects.cache(source.name) for kind, source in _SOURCES.items()}
        for cache in self._caches.values():
            cache.add_index(_BY_PARENT, _parent_of)
        self._surveys: dict[str, dict[NodeKey, Survey]] = {}
        self._tops: dict[str, dict[NodeKey, NodeKey]] = {}
        objects.add_handler(self._forget)
        for cache in self._caches.values():
            cache.add_handler(self._tell_trees)
        self.holder_of: Callable[[Pod], GroupKey | None] = lambda _pod: None
        self.held_by: Callable[[GroupKey], Iterable[str]] = lambda _key: ()

    @property
    def settled(self) -> bool:
        """True once it is known which groups there are, or that they cannot be known."""
        return all(
            self._objects.find(source, "", "").readable is not Readable.NOT_YET
            for source in _SOURCES.values()
        )

    def group_of(self, pod: Pod, key: GroupKey) -> GroupKey:
        """Return the group with which a pod starts that names a PodGroup."""
        return self.holder_of(pod) or self._unit_key(key)

    def unit(self, key: GroupKey) -> Unit | None:
        """Return a unit by the key of its workload; None if the group is part of no tree, or of a unit."""
        node = (key.kind, key.name)
        if node[0] == NATIVE_POD_GROUPS.kind and not self._has_parent(key.namespace, node):
            return None
        return self._survey(key.namespace, self._top(key.namespace, node)).units.get(node)

    def leaves(self, key: GroupKey) -> list[GroupKey]:
        """Return the PodGroups of which pods start with a composite, also those of which none has to."""
        read = self._survey(key.namespace, self._top(key.namespace, (key.kind, key.name)))
        return [
            each
            for each in self._below(key.namespace, (key.kind, key.name))
            if each.kind == NATIVE_POD_GROUPS.kind and read.unit_of(each.name).key == (key.kind, key.name)
        ]

    def lookup(self, key: GroupKey) -> Lookup:
        """Return what says the size of a unit: a `Unit`, or a PodGroup as it starts by itself."""
        source = _SOURCES[key.kind]
        found, unit = self._objects.find(source, key.namespace, key.name), self.unit(key)
        if found.obj is None:
            return found
        if source is COMPOSITE_POD_GROUPS:
            return replace(found, obj=unit or Unit((key.kind, key.name), found.obj.metadata))
        return replace(found, obj=in_domain(found.obj, unit.domain)) if unit is not None else found

    def key_of(self, namespace: str, node: NodeKey) -> GroupKey:
        """Return the key of the workload of a group."""
        kind, name = node
        return GroupKey(namespace, name, kind, _SOURCES[kind].name)

    def related(self, source: str, namespace: str, name: str) -> list[GroupKey]:
        """Return all that a change of a composite may concern: of a root its tree, with the workloads of
        former trees. A change of any other group of a tree is one of its root too.
        """
        if source != COMPOSITE_POD_GROUPS.name or not name:
            return []
        node = (COMPOSITE_POD_GROUPS.kind, name)
        is_root = self._top(namespace, node) == node
        keys = self._below(namespace, node) if is_root else [self.key_of(namespace, node)]
        return [*dict.fromkeys([*keys, *map(self._unit_key, keys)])]

    def pod_released(self, key: GroupKey) -> None:
        """Have the tree of a group, one of whose pods was released, read again if some of it starts after."""
        if key.source in [source.name for source in _SOURCES.values()]:
            kind, name = top = self._top(key.namespace, (key.kind, key.name))
            if kind == COMPOSITE_POD_GROUPS.kind and len(self._survey(key.namespace, top).units) > 1:
                self._objects.notify(_SOURCES[kind].name, key.namespace, name)

    def _unit_key(self, key: GroupKey) -> GroupKey:
        node = (key.kind, key.name)
        if not self._has_parent(key.namespace, node):
            return key
        top = self._top(key.namespace, node)
        read = self._survey(key.namespace, top)
        unit = read.unit_of(key.name) if node[0] == NATIVE_POD_GROUPS.kind else read.units.get(node)
        return self.key_of(key.namespace, unit.key if unit is not None else top)

    def _has_parent(self, namespace: str, node: NodeKey) -> bool:
        obj = self._find(namespace, node)
        return obj is not None and bool(parent_of_group(obj))

    def _top(self, namespace: str, node: NodeKey) -> NodeKey:
        """Return the root above a group, or the first name of a circle above it."""
        known = self._tops.setdefault(namespace, {})
        path: dict[NodeKey, None] = {}
        while node not in known:
            path[node] = None
            obj = self._find(namespace, node)
            parent = parent_of_group(obj) if obj is not None else ""
            if not parent:
                known[node] = node
            elif (above := (COMPOSITE_POD_GROUPS.kind, parent)) in path:
                circle = [*path][[*path].index(above) :]
                known[node] = min(circle)
            else:
                node = above
        known.update(dict.fromkeys(path, known[node]))
        return known[node]

    def _survey(self, namespace: str, top: NodeKey) -> Survey:
        known = self._surveys.setdefault(namespace, {})
        if top not in known:
            known[top] = survey(
                top, lambda node: self._find(namespace, node), lambda name: self._children(namespace, name)
            )
        return known[top]

    def _below(self, namespace: str, top: NodeKey) -> list[GroupKey]:
        """Return a group and all below it."""
        seen, open_nodes = {top: None}, [top]
        while open_nodes:
            kind, name = open_nodes.pop()
            if kind == COMPOSITE_POD_GROUPS.kind:
                new = [each for each in self._children(namespace, name) if each not in seen]
                seen.update(dict.fromkeys(new))
                open_nodes += new
        return [self.key_of(namespace, node) for node in seen]

    def _find(self, namespace: str, node: NodeKey) -> Any:
        kind, name = node
        return self._caches[kind].get(namespace, name)

    def _children(self, namespace: str, name: str) -> Sequence[NodeKey]:
        return [
            (kind, each.metadata.name)
            for kind, cache in self._caches.items()
            for each in cache.by_index(_BY_PARENT, (namespace, name))
        ]

    def _forget(self, source: str, namespace: str, _name: str) -> None:
        """Forget what was read in a namespace; in all of them if it is not known where something changed."""
        if source not in [each.name for each in _SOURCES.values()]:
            return
        for known in (self._surveys, self._tops):
            known.pop(namespace, None) if namespace else known.clear()

    def _tell_trees(self, change: Change[Any]) -> None:
        """Have the trees read again that a group was, or is now, a part of. Each is told by its root, so that
        many changes of one tree are read together.
        """
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return
        namespace = change.obj.metadata.namespace
        parents = {parent_of_group(each) for each in (old, new) if each is not None} - {""}
        for kind, name in {self._top(namespace, (COMPOSITE_POD_GROUPS.kind, parent)) for parent in parents}:
            self._objects.notify(_SOURCES[kind].name, namespace, name)


def _parent_of(group: Any) -> Iterable[tuple[str, str]]:
    parent = parent_of_group(group)
    return ((group.metadata.namespace, parent),) if parent else ()
