"""What each source of gangs consists of: which group a pod belongs to, and how many pods of which roles start
together.

A *source* is one way in which another project says that pods belong together: by labels, by annotations, or
by the object that controls them. Each has a module of its own with one `GangSource`, and
`fluxqueue.queue.model.sources.registry` lists them. Nothing else in the queue knows a project by its name.

The size of a gang is often not on its pods but in an object: a PodGroup, an MPIJob, a RayCluster. Such a
source names the resource, and the struct with the few fields that are read. The queue watches it
(`fluxqueue.queue.cluster.gang_objects`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fluxqueue.api.bounds import max_pods
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod, PodTemplateSpec

__all__ = [
    "ANY_ROLE",
    "Gang",
    "GangSource",
    "InvalidGang",
    "Resource",
    "Role",
    "SizedObject",
    "api_group",
    "limited",
    "named",
    "whole_number",
]

ANY_ROLE = ""
"""The role of all pods of a gang whose pods are not told apart."""

_MAX_NAME = 253
"""Of an object of Kubernetes. An annotation may contain longer texts."""


class InvalidGang(ValueError):
    """What the pods or their object say cannot be the size of a gang;
    the message names the field and the remedy.
    """


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of a gang that are alike.

    Attributes
    ----------
    name
        As `GangSource.role_of` returns it for these pods.
    pods
        How many of them start together with the gang.
    later
        Their template if they are created only once others of the gang run: then slots are kept for them.
        None if they are created at once.
    """

    name: str
    pods: int
    later: PodTemplateSpec | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """What starts together. A gang without roles is none: its pods are matched one by one.

    Attributes
    ----------
    roles
        In the order in which their pods get slots.
    late_after_s
        A gang that is incomplete for this many seconds is reported as late; None is the queue's own time.
    active
        False if no pod of it is created any more.
    domain
        Label of nodes that must have one value on all nodes of its pods; empty: any nodes.
    """

    roles: tuple[Role, ...]
    late_after_s: float | None = None
    active: bool = True
    domain: str = ""

    @property
    def pods(self) -> int:
        """How many pods start together."""
        return sum(role.pods for role in self.roles)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API server with the sizes of gangs.

    Attributes
    ----------
    group, plural, kind
        As in its CRD.
    versions
        That are understood, the preferred one first.
    struct
        The fields that are read of its objects.
    """

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]
    struct: type[SizedObject]

    @property
    def name(self) -> str:
        """For example ``mpijobs.kubeflow.org``, as the CRD is called."""
        return f"{self.plural}.{self.group}"


def _same_role(_pod: Pod) -> str:
    return ANY_ROLE


def _never(_job: Job) -> str | None:
    return None


def _all_of_them(_obj: Any) -> Mapping[str, int]:
    return {}


def _none_stays(_pod: Pod) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class GangSource:
    """One way to write gangs.

    Attributes
    ----------
    name
        Identifies the source, for example in `GroupKey`.
    api_version, kind
        Of the workload of such a gang, and of the object that people know it by.
    group_of
        Returns the name of a pod's gang, or None. The Job of the pod is given if it has one that is known.
    read
        Returns the gang, from its waiting pods and its object (None if the source has no resource). Raises
        `InvalidGang`.
    marks
        Labels and annotations of which each such pod has one, unless it has a controller of `controllers`.
    controllers
        API group and kind of controllers whose pods are gangs.
    role_of
        Returns the role of a pod.
    resource
        Where its size is read; None if the pods say all.
    object_of
        Returns the name of the object of a pod; None is the name of the gang.
    optional
        True if a gang can be read without its object.
    job_of
        Returns the name of the gang of a Job whose own controller resumes it, or None.
    counts_succeeded
        True if a pod that succeeded counts as started.
    leasts_of
        Returns with how few pods of each role an object goes on, from the object;
        of a role that is missing, or 0, only with all.
    stays
        True for a pod without which none of its role goes on.
    """

    name: str
    api_version: str
    kind: str
    group_of: Callable[[Pod, Job | None], str | None]
    read: Callable[[Sequence[Pod], Any], Gang]
    marks: frozenset[str] = field(default_factory=frozenset)
    controllers: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    role_of: Callable[[Pod], str] = _same_role
    resource: Resource | None = None
    object_of: Callable[[Pod], str | None] | None = None
    optional: bool = False
    job_of: Callable[[Job], str | None] = _never
    counts_succeeded: bool = True
    leasts_of: Callable[[Any], Mapping[str, int]] = _all_of_them
    stays: Callable[[Pod], bool] = _none_stays

    @property
    def resumes_jobs(self) -> bool:
        """True if pods of Jobs can belong to its gangs:
        their controller resumes these Jobs, so that their pods come gated.
        """
        return self.job_of is not _never

    def belongs_to(self, pod: Pod, obj: Any) -> bool:
        """Return False for a pod whose controller has the name of this object of the source, and is another
        one.

        An object that is deleted and created again has the same name. Its former pods exist until garbage
        collection deletes them.
        """
        owner = pod.metadata.controller
        if owner is None or (api_group(owner.api_version), owner.kind) not in self.controllers:
            return True
        return bool(owner.uid == obj.metadata.uid)

    def object_name(self, pod: Pod, group: str) -> str:
        """Return the name of the object that says the size of a pod's gang."""
        return (self.object_of(pod) if self.object_of is not None else None) or group


class SizedObject(PartialObject, frozen=True):
    """An object that says the size of gangs.
    Of its annotations none is read, and one whose spec is too long is not read at all.
    """

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    most_bytes: ClassVar[int] = 131_072

    metadata: ObjectMeta = ObjectMeta()


def api_group(api_version: str) -> str:
    """Return the group of an ``apiVersion``; empty for the core group."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def named(name: str | None) -> str | None:
    """Return a name that an object can have, or None."""
    return name if name and len(name) <= _MAX_NAME else None


def controller_name(meta: ObjectMeta, group: str, kinds: frozenset[str]) -> str | None:
    """Return the name of the controller of an object if it is of one of these kinds, in any version."""
    owner = meta.controller
    return (
        named(owner.name)
        if owner is not None and owner.kind in kinds and api_group(owner.api_version) == group
        else None
    )


def whole_number(value: int | None, path: str, *, least: int = 1, default: int | None = None) -> int:
    """Return a number of pods as an object states it.

    Parameters
    ----------
    value
        As it is written; None if it is missing.
    path
        Of the field, for the sentence.
    least
        The smallest valid number.
    default
        If the field is missing; None if it must be there.

    Raises
    ------
    InvalidGang
        It is missing or outside the limits.
    """
    if value is None and default is not None:
        return default
    if value is None:
        raise InvalidGang(f"{path} is missing: write a whole number from {least} to {max_pods()}")
    if not least <= value <= max_pods():
        raise InvalidGang(f"{path} is {value}: write a whole number from {least} to {max_pods()}")
    return value


def limited(roles: Sequence[Role], at_least: int | None, path: str) -> tuple[Role, ...]:
    """Return the roles of a gang of which only ``at_least`` pods must start together; the last roles give way
    first.

    Raises
    ------
    InvalidGang
        The number is outside the limits, or all roles together have too many pods.
    """
    total = sum(role.pods for role in roles)
    if total > max_pods():
        raise InvalidGang(f"it asks for {total} pods: at most {max_pods()} start as one, so make it smaller")
    surplus = total - whole_number(at_least, path, default=total) if total else 0
    kept: list[Role] = []
    for role in reversed(roles):
        less = min(max(surplus, 0), role.pods)
        surplus -= less
        if role.pods > less:
            kept.append(Role(role.name, role.pods - less, role.later))
    return tuple(reversed(kept))
