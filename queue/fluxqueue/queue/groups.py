"""Pods that belong together although they were made one by one.

Pods with the label ``fluxqueue/pod-group`` in one namespace are one group, and are matched as one unit once there are as many as their
annotation ``fluxqueue/pod-group-size`` says. A group of the same name in another namespace is another group. Nothing is let go before
the group is complete: a group that stays incomplete holds no nodes, so it may wait for as long as it likes, and after a while it is said
aloud.

Who belongs to a group that has its nodes already is decided by place alone: a pod takes a place that is free and was matched for exactly
its size, or it is matched on its own. So whoever borrows the name of a foreign group gains nothing by it: there is no place for him, or he
fills one whose pod is gone. A group ends with its places; pods that come later begin a group of their own.

Two more kinds of groups are the same in all but how they come together. A *gang* is the pods of a Deployment, ReplicaSet or StatefulSet
whose template says ``fluxqueue/gang: "true"``: they start together for the first time, and since a StatefulSet may show only its first pod
until that is ready, number and shape are those of the owner. A *JobSet* is the pods of all its Jobs, which it resumes itself, so that they
come gated; it is whole when all its Jobs are there and all the pods they still run at once.

A label or a size that makes no sense is said of the whole group, since nobody knows which of its pods is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.objects import Job, ObjectMeta, Pod
from fluxqueue.queue.records import ReleaseMode, Workload
from fluxqueue.queue.requeues import pods_wanted
from fluxqueue.queue.successors import Line, line_of

__all__ = [
    "JOB_SET",
    "OVERDUE_S",
    "POD_GROUP",
    "Gathering",
    "GroupKey",
    "gather",
    "gather_gang",
    "gather_jobset",
    "group_of",
    "group_of_workload",
    "jobset_of",
    "line_of_group",
]

POD_GROUP = "PodGroup"
"""Kind of the workload that a pod group is."""

JOB_SET = "JobSet"
_JOBSET_GROUP = "jobset.x-k8s.io/"

OVERDUE_S = 600.0
"""A group that is incomplete for so long is said to be late, with an Event of its own."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group: a name means another one in each namespace; ``kind`` is that of the owner, or `POD_GROUP`."""

    namespace: str
    name: str
    kind: str = POD_GROUP


@dataclass(frozen=True, slots=True)
class Gathering:
    """How far a group that has no nodes yet has come together.

    Attributes
    ----------
    members
        Its pods, oldest first, at most as many as belong to it.
    surplus
        Pods that carry its name beyond its size.
    size
        How many belong to it; as many as there are, where that cannot be told.
    reason, message
        Why it cannot be matched (`Reason.NONE`: it can).
    alike
        Whether all ``size`` pods are like the first member, be they there or not.
    said
        Metadata that speaks for the group beside its pods'.
    """

    members: tuple[Pod, ...]
    surplus: tuple[Pod, ...]
    size: int
    reason: Reason = Reason.NONE
    message: str = ""
    alike: bool = False
    said: ObjectMeta | None = None

    @property
    def uid(self) -> str:
        """Identity of the group for as long as it exists: that of its first pod, told apart from the pod's own."""
        return f"group-{self.members[0].metadata.uid}"

    @property
    def generation(self) -> int:
        """Changes with the pods that belong to it: what was matched for others is not granted."""
        if self.alike:
            return self.size
        return zlib.crc32("\n".join(sorted(pod.metadata.uid for pod in self.members)).encode())


def group_of(pod: Pod, job: Job | None = None) -> GroupKey | None:
    """The group a pod belongs to.

    The pods of a Job are the Job's, whatever they name, or its JobSet's: that is told from their label, and with it from the Job that
    controls them, where that is known, since anybody may write a label.
    """
    meta = pod.metadata
    owner = meta.controller
    if owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/"):
        jobset = meta.label(names.JOBSET_NAME_LABEL)
        return GroupKey(meta.namespace, jobset, JOB_SET) if jobset and (job is None or jobset_of(job) == jobset) else None
    if name := meta.label(names.POD_GROUP_LABEL):
        return GroupKey(meta.namespace, name)
    if meta.annotation(names.GANG_ANNOTATION) == "true" and (line := line_of(pod)) is not None:
        return GroupKey(line.namespace, line.name, line.kind)
    return None


def line_of_group(key: GroupKey) -> Line | None:
    """The owner of a gang, None of other groups."""
    return None if key.kind in (POD_GROUP, JOB_SET) else Line(key.namespace, key.kind, key.name)


def jobset_of(job: Job) -> str | None:
    """The name of the JobSet that controls a Job, or None."""
    owner = job.metadata.controller
    return owner.name if owner is not None and owner.kind == JOB_SET and owner.api_version.startswith(_JOBSET_GROUP) else None


def group_of_workload(workload: Workload) -> GroupKey | None:
    """The group a workload is, or None if it is no group."""
    return GroupKey(workload.namespace, workload.name, workload.kind) if workload.release_mode is ReleaseMode.GROUP else None


def gather(key: GroupKey, pods: Iterable[Pod], since: datetime | None, now: datetime) -> Gathering | None:
    """Bring together a group that has no nodes yet.

    Parameters
    ----------
    key
        Which.
    pods
        All pods that name it and wait: gated, not going away.
    since
        When the first of them was taken in; None: just now.
    now
        On the same clock.

    Returns
    -------
    Gathering or None
        None where there are no pods.
    """
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    where = f"pod group {key.namespace}/{key.name}"
    said: dict[int, str] = {}
    for pod in waiting:
        text = pod.metadata.annotation(names.POD_GROUP_SIZE_ANNOTATION)
        if text is None:
            continue
        try:
            said.setdefault(parse_group_size(text), pod.metadata.name)
        except InvalidGroupSize as error:
            return _invalid(waiting, f"{where}: annotation {names.POD_GROUP_SIZE_ANNOTATION} of pod {pod.metadata.name}: {error}")
    if not said:
        return _invalid(waiting, f"{where}: no pod says how many belong to it: set the annotation {names.POD_GROUP_SIZE_ANNOTATION}")
    if len(said) > 1:
        sizes = ", ".join(f"{size} (pod {name})" for size, name in sorted(said.items()))
        return _invalid(
            waiting, f"{where}: its pods name different sizes, {sizes}: write the same {names.POD_GROUP_SIZE_ANNOTATION} on all"
        )
    (size,) = said
    members, surplus = tuple(waiting[:size]), tuple(waiting[size:])
    if queues := _different(members):
        return Gathering(members, surplus, size, Reason.INVALID_REQUEST, f"{where}: its pods name different queues, {queues}: name one")
    if len(members) == size:
        return Gathering(members, surplus, size)
    message = f"{where} has {len(members)} of {size} pods: it is matched when all are there"
    if since is not None and (now - since).total_seconds() >= OVERDUE_S:
        message = (
            f"{where} has had only {len(members)} of {size} pods for more than {OVERDUE_S / 60:.0f} minutes: create the others, "
            f"or delete these; none is started before all are there"
        )
    return Gathering(members, surplus, size, Reason.WAITING_FOR_GROUP, message)


def gather_gang(pods: Iterable[Pod], owner: ScaledWorkload | None) -> Gathering | None:
    """Bring together the first pods of an owner: as many as it wants, like the one that is there. None where there are no pods."""
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    size = max(owner.spec.size if owner is not None else 0, len(waiting))
    return Gathering(tuple(waiting), (), size, alike=True)


def gather_jobset(key: GroupKey, pods: Iterable[Pod], jobs: Sequence[Job]) -> Gathering | None:
    """Bring together the pods of a JobSet's Jobs.

    Parameters
    ----------
    key
        Which.
    pods
        All its pods that wait: gated, not going away.
    jobs
        Its Jobs, finished ones too. How many there are to be, they say themselves where the JobSet wrote it on them.

    Returns
    -------
    Gathering or None
        None where there are no pods.
    """
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    where = f"JobSet {key.namespace}/{key.name}"
    said = next(iter(jobs)).metadata if jobs else None
    total = max((int(text) for job in jobs if (text := _total(job)) and text.isdecimal() and len(text) < 7), default=len(jobs))
    size = max(sum(pods_wanted(job) for job in jobs if not job.finished), 1)
    if len(jobs) < total:
        message = f"{where} has {len(jobs)} of {total} Jobs: it is matched when all are there"
        return Gathering(tuple(waiting), (), size, Reason.WAITING_FOR_GROUP, message, said=said)
    if len(waiting) < size:
        message = f"{where} has {len(waiting)} of {size} pods: it is matched when all are there"
        return Gathering(tuple(waiting), (), size, Reason.WAITING_FOR_GROUP, message, said=said)
    return Gathering(tuple(waiting), (), len(waiting), said=said)


def _total(job: Job) -> str | None:
    meta = job.metadata
    return meta.label(names.JOBSET_TOTAL_KEY) or meta.annotation(names.JOBSET_TOTAL_KEY)


def _oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))


def _invalid(waiting: Sequence[Pod], message: str) -> Gathering:
    return Gathering(tuple(waiting), (), len(waiting), Reason.INVALID_REQUEST, message)


def _different(members: Sequence[Pod]) -> str:
    """The queues its pods name, if they are not the same."""
    queues = {pod.metadata.label(names.QUEUE_LABEL) or "none" for pod in members}
    return ", ".join(sorted(queues)) if len(queues) > 1 else ""
