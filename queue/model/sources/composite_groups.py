"""Kubernetes' gangs of gangs: a CompositePodGroup (KEP-6012, Kubernetes 1.37), whose children are PodGroups
and further CompositePodGroups, on at most four levels with the PodGroups.

What starts together is a *unit*: a composite with the children that its minimum needs, and what their minima
need. The oldest children are needed; of a ``basic`` composite it is one. Each further child is a unit of its
own and starts after. Children of a ``basic`` composite that has no parent and no topology are independent.

A pod names only its PodGroup, so its unit depends on all objects of the tree. This module reads a tree as it
is; `fluxqueue.queue.cluster.composite_trees` has the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluxqueue.api.bounds import max_pods
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod, SchedulingConstraints
from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    GangSource,
    InvalidGang,
    Resource,
    Role,
    SizedObject,
    whole_number,
)
from fluxqueue.queue.model.sources.native_groups import domain_of, least_of_group

__all__ = ["COMPOSITE_POD_GROUPS", "MOST_GROUPS", "NodeKey", "Survey", "Unit", "survey"]

MOST_GROUPS = 1_000
"""PodGroups and CompositePodGroups in one tree."""
_MOST_COMPOSITES = 3
"""From the root to a PodGroup: kube-scheduler reads four levels, and the last are PodGroups."""
_COMPOSITE = "CompositePodGroup"
_CONSTRAINTS = "spec.schedulingConstraints"

NodeKey = tuple[str, str]
"""Kind and name of a group; a tree is in one namespace."""


class _GangPolicy(PartialObject, frozen=True):
    min_group_count: int | None = None


class _Policy(PartialObject, frozen=True):
    gang: _GangPolicy | None = None


class _Spec(PartialObject, frozen=True):
    parent_composite_pod_group_name: str | None = None
    scheduling_policy: _Policy = _Policy()
    scheduling_constraints: SchedulingConstraints | None = None
    priority: int | None = None


class _CompositePodGroup(SizedObject, frozen=True):
    spec: _Spec = _Spec()


@dataclass(slots=True)
class Unit:
    """Groups that start together.

    Attributes
    ----------
    key
        Of the group under which all of them are.
    metadata
        Of that group; None if it does not exist.
    leaves
        Names of its PodGroups, and how many pods of each start together.
    domain
        Label of nodes that must have one value on all its nodes; empty: any nodes.
    inherited
        True if that value is also that of the unit that it awaits.
    awaits
        The unit that has to start before; None: it waits for none.
    waits_for
        Which groups are still to be created, in words; empty: none.
    priority
        That all its pods must have; None if that is not known.
    problem
        Why it cannot start, in words; empty if it can.
    """

    key: NodeKey
    metadata: ObjectMeta | None = None
    leaves: dict[str, int] = field(default_factory=dict)
    domain: str = ""
    inherited: bool = False
    awaits: NodeKey | None = None
    waits_for: str = ""
    priority: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What starts together of one tree.

    Attributes
    ----------
    top
        Its root, or the name of a root that does not exist.
    units
        By key.
    by_leaf
        The unit of each PodGroup.
    """

    top: NodeKey
    units: Mapping[NodeKey, Unit]
    by_leaf: Mapping[str, NodeKey]

    def unit_of(self, leaf: str) -> Unit:
        """Return the unit of a PodGroup; that of the root for one that was not reached."""
        return self.units[self.by_leaf.get(leaf, self.top)]


def survey(
    top: NodeKey, find: Callable[[NodeKey], Any], children: Callable[[str], Sequence[NodeKey]]
) -> Survey:
    """Read a tree.

    Parameters
    ----------
    top
        Its root.
    find
        Returns the object of a group, or None.
    children
        Returns the children of a composite, by its name.
    """
    reader = _Reader(top, find, children)
    try:
        reader.read()
    except InvalidGang as error:
        root = find(top)
        whole = Unit(top, root.metadata if root is not None else None, problem=str(error))
        return Survey(top, {top: whole}, {})
    return Survey(top, reader.units, reader.by_leaf)


class _Reader:
    def __init__(
        self, top: NodeKey, find: Callable[[NodeKey], Any], children: Callable[[str], Sequence[NodeKey]]
    ) -> None:
        self._top, self._find, self._children = top, find, children
        self._seen: set[NodeKey] = set()
        self._labels: dict[NodeKey, list[frozenset[str]]] = {}
        self.units: dict[NodeKey, Unit] = {}
        self.by_leaf: dict[str, NodeKey] = {}

    def read(self) -> None:
        self._visit(self._top, self._begin(self._top, None), frozenset(), 1)
        for unit in self.units.values():
            self._set_domain(unit)

    def _begin(self, key: NodeKey, awaits: NodeKey | None) -> Unit:
        root, obj = self._find(self._top), self._find(key)
        unit = self.units[key] = Unit(key, obj.metadata if obj is not None else None, awaits=awaits)
        unit.priority = (root.spec.priority or 0) if root is not None else None
        return unit

    def _visit(self, key: NodeKey, unit: Unit, above: frozenset[str], level: int) -> None:
        kind, name = key
        obj = self._find(key)
        if key in self._seen:
            raise InvalidGang(
                f"spec.parentCompositePodGroupName leads from {kind} {name} back to it: "
                "create one of them without a parent"
            )
        self._seen.add(key)
        _check_count(len(self._seen))
        try:
            own = domain_of(obj.spec.scheduling_constraints, _CONSTRAINTS) if obj is not None else ""
            labels = above | {own} if own else above
            if kind != _COMPOSITE:
                unit.leaves[name] = least_of_group(obj)
                self.by_leaf[name] = unit.key
                self._labels.setdefault(unit.key, []).append(labels)
                return
            if level > _MOST_COMPOSITES:
                raise InvalidGang(
                    f"it is below {_MOST_COMPOSITES} others: the scheduler of the cluster reads "
                    f"{_MOST_COMPOSITES} levels of them and one of PodGroups, so make fewer levels"
                )
            children = self._children(name)
            _check_count(len(children))
            children = sorted(children, key=self._age)
            needed = self._needed(obj, len(children))
        except InvalidGang as error:
            raise InvalidGang(f"{kind} {name}: {error}" if key != self._top else str(error)) from None
        if len(children) < needed and not unit.waits_for:
            unit.waits_for = f"{kind} {name} has {len(children)} of {needed} groups"
        for child in children[:needed]:
            self._visit(child, unit, labels, level + 1)
        for child in children[needed:]:
            later = self._begin(child, unit.key if needed else None)
            later.inherited = bool(labels)
            self._visit(child, later, labels, level + 1)

    def _needed(self, composite: Any, present: int) -> int:
        """Return how many children of a composite start together: all of one that does not exist."""
        if composite is None:
            return present
        spec = composite.spec
        if spec.scheduling_policy.gang is not None:
            return whole_number(
                spec.scheduling_policy.gang.min_group_count, "spec.schedulingPolicy.gang.minGroupCount"
            )
        constraints = spec.scheduling_constraints
        held = spec.parent_composite_pod_group_name or (constraints is not None and constraints.topology)
        return 1 if held else 0

    def _age(self, key: NodeKey) -> tuple[str, NodeKey]:
        obj = self._find(key)
        return (obj.metadata.creation_timestamp or "" if obj is not None else ""), key

    def _set_domain(self, unit: Unit) -> None:
        """Note the one label of all groups of a unit."""
        found = self._labels.get(unit.key, [])
        names = sorted(frozenset[str]().union(*found))
        if not names:
            return
        if len(names) > 1 or any(len(each) != 1 for each in found):
            unit.problem = (
                f"{_CONSTRAINTS}.topology of its groups and those above them names {', '.join(names)}, "
                "not one label for all: groups that start together have one, so name it in this "
                "CompositePodGroup only"
            )
        unit.domain = names[0]


def _check_count(groups: int) -> None:
    if groups > MOST_GROUPS:
        raise InvalidGang(f"its tree has more than {MOST_GROUPS} groups: make several of it")


def _in_no_spec(_pod: Pod, _job: Job | None) -> str | None:
    """Return None: a pod names its PodGroup only."""
    return None


def _role_of(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def _read(_pods: Iterable[Pod], unit: Unit) -> Gang:
    if unit.problem:
        raise InvalidGang(unit.problem)
    if (total := sum(unit.leaves.values())) > max_pods():
        raise InvalidGang(f"it asks for {total} pods: at most {max_pods()} start as one, so make it smaller")
    return Gang(tuple(Role(name, least) for name, least in unit.leaves.items()), domain=unit.domain)


COMPOSITE_POD_GROUPS = GangSource(
    name="kubernetes-composite",
    api_version="scheduling.k8s.io/v1alpha3",
    kind=_COMPOSITE,
    group_of=_in_no_spec,
    read=_read,
    role_of=_role_of,
    resource=Resource(
        "scheduling.k8s.io", "compositepodgroups", _COMPOSITE, ("v1alpha3",), _CompositePodGroup
    ),
)
