"""Reads the gangs of other projects: their pods, and the objects that say how many of them start together.

A gang waits, with one sentence, for what its size depends on: for its pods, for its object, or for the first
list of such objects. If the queue cannot know objects of its kind at all (their CRD is gone, or the queue may
not read them), the pods of its controllers are matched one by one, as those of any controller that is not
known. A pod that names its gang itself, by a label, then waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.graphnames import label_property
from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.model.groups import GatheredGroup, GroupKey
from fluxqueue.queue.model.pods import age
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS, NodeKey, Unit
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.gathering import GangPods, gather_gang_of_source
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS
from fluxqueue.queue.model.sources.registry import source_named
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ForeignGangs"]

_LOOKS_AGAIN_S = 2.0, 60.0
"""After a tenth of the time that a group has waited, within these bounds, it is looked whether the groups
have started that come before: of what is released, its tree is told at once."""


class ForeignGangs:
    """Reads gangs of the sources in `fluxqueue.queue.model.sources.registry`."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    def gather(self, key: GroupKey, waiting: Sequence[Pod], row: Workload | None) -> GatheredGroup | None:
        """Return a gang as far as it has come together; None if its waiting pods are matched one by one, or
        if none waits.

        Parameters
        ----------
        key
            Which.
        waiting
            Its gated pods that have no workload of their own.
        row
            Its workload, if it has one.
        """
        if not waiting:
            return None
        source = source_named(key.source)
        lookup = self._caches.gang_object(source, key, waiting)
        if _is_unknown(source, lookup):
            return None
        where = f"{source.kind} {key.namespace}/{key.name}"
        if source.resource is not None and lookup.obj is None and not source.optional:
            name = source.object_name(min(waiting, key=age), key.name)
            return _without_object(
                waiting, lookup, where, f"{source.resource.kind} {key.namespace}/{name}", source.resource.name
            )
        unit = self._caches.composite_trees.unit(key) if _is_native(key) else None
        if unit is not None and (held := self._held(unit, key, waiting, where, row)) is not None:
            return held
        own = {pod.metadata.uid for pod in waiting}
        others = [pod for pod in self._caches.pods_of_group(key) if pod.metadata.uid not in own]
        if lookup.obj is not None:
            others = [pod for pod in others if source.belongs_to(pod, lookup.obj)]
            waiting, every = [pod for pod in waiting if source.belongs_to(pod, lookup.obj)], waiting
            if not waiting:
                return _of_another_object(every, where)
        since = row.submitted_at if row is not None else None
        found = gather_gang_of_source(
            GangPods(source, where, waiting, others), lookup.obj, since, self._ledger.clock()
        )
        if found is None or unit is None or not unit.inherited or unit.awaits is None:
            return found
        return replace(found, beside=self._beside(unit.domain, self._key(key, unit.awaits)))

    def _held(
        self, unit: Unit, key: GroupKey, waiting: Sequence[Pod], where: str, row: Workload | None
    ) -> GatheredGroup | None:
        """Return a unit of a tree of PodGroups that cannot start because of the tree;
        None if it is a matter of its pods only.
        """
        members = tuple(sorted(waiting, key=age))
        problem, awaited = unit.problem or _other_priority(members, unit), ""
        if unit.awaits is not None and not self._has_started(self._key(key, unit.awaits)):
            awaited = (
                f"{where} starts after {unit.awaits[0]} {key.namespace}/{unit.awaits[1]}, which has not "
                "started: the minimum of the groups above them is met without it"
            )
        elif unit.waits_for:
            awaited = f"{where} cannot start yet: {unit.waits_for}, so create the others"
        if problem:
            message = f"{where}: {problem}"
            return GatheredGroup(members, (), len(members), Reason.INVALID_REQUEST, message)
        if not awaited:
            return None
        waited_s = (self._ledger.clock() - row.submitted_at).total_seconds() if row is not None else 0.0
        least_s, most_s = _LOOKS_AGAIN_S
        again_s = min(max(waited_s / 10, least_s), most_s) if unit.awaits is not None else 0
        return GatheredGroup(
            members,
            (),
            len(members),
            Reason.WAITING_FOR_GROUP,
            awaited,
            metadata=unit.metadata,
            again_s=again_s,
        )

    def _key(self, key: GroupKey, node: NodeKey) -> GroupKey:
        return self._caches.composite_trees.key_of(key.namespace, node)

    def _has_started(self, key: GroupKey) -> bool:
        row = self._ledger.group(key)
        if row is not None:
            return row.state is not State.PENDING
        return any(not pod.held for pod in self._caches.pods_of_group(key))  # also if they have ended

    def _beside(self, label: str, awaited: GroupKey) -> tuple[str, ...]:
        """Return the properties of nodes in the domain in which a unit runs that started before."""
        row = self._ledger.group(awaited)
        allocation = self._ledger.allocation(row.id) if row is not None else None
        nodes = [slot.node for slot in allocation.open_slots] if allocation is not None else []
        pods = [pod for pod in self._caches.pods_of_group(awaited) if pod.active]
        nodes += [pod.spec.node_name for pod in pods if pod.spec.node_name]
        for name in nodes:
            node = self._caches.nodes.get("", name)
            if node is not None and (value := node.metadata.label(label)):
                return (label_property(label, value),)
        return ()


def _is_native(key: GroupKey) -> bool:
    return key.source in (NATIVE_POD_GROUPS.name, COMPOSITE_POD_GROUPS.name)


def _other_priority(members: Sequence[Pod], unit: Unit) -> str:
    """Return which pod has another priority than the root of its tree, in words; empty if none has."""
    if unit.priority is None:
        return ""
    for pod in members:
        if (own := pod.spec.priority or 0) != unit.priority:
            return (
                f"pod {pod.metadata.name} has priority {own}, and the root of its groups {unit.priority}: "
                "the scheduler of the cluster binds none then, so name the same priorityClassName in all"
            )
    return ""


def _is_unknown(source: GangSource, lookup: Lookup) -> bool:
    """True if the size of such gangs cannot be known, and no person asked for a gang by name."""
    return bool(source.controllers) and lookup.readable in (Readable.NOT_SERVED, Readable.FORBIDDEN)


def _of_another_object(waiting: Sequence[Pod], where: str) -> GatheredGroup:
    """Return a gang whose object is read as it was before it was created again,
    or whose pods are about to be deleted with a former one.
    """
    message = (
        f"{where}, which was created again, waits until the queue has read the new one, "
        "or the pods of the old one are deleted"
    )
    return GatheredGroup(tuple(sorted(waiting, key=age)), (), len(waiting), Reason.WAITING_FOR_GROUP, message)


def _without_object(
    waiting: Sequence[Pod], lookup: Lookup, where: str, title: str, resource: str
) -> GatheredGroup:
    """Return a gang that waits for the object that says its size."""
    members = tuple(sorted(waiting, key=age))
    if lookup.problem:
        message = f"{where}: {title} cannot be read, correct it: {lookup.problem:.300}"
        return GatheredGroup(members, (), len(members), Reason.INVALID_REQUEST, message)
    causes = {
        Readable.NOT_YET: f"{where} waits until the queue has read all {resource}",
        Readable.NOT_SERVED: f"{where} waits for {title}, but the cluster has no {resource}: install the CRD",
        Readable.FORBIDDEN: (
            f"{where} waits, because the queue may not read {resource}: "
            "add it to gangs.resources of the chart"
        ),
        Readable.YES: (
            f"{where} waits for {title}, which does not exist: create it, "
            "it says how many pods start together"
        ),
    }
    return GatheredGroup(members, (), len(members), Reason.WAITING_FOR_GROUP, causes[lookup.readable])
