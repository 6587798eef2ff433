"""Pods that are matched as one workload although they were created one by one: pod groups, gangs and JobSets.

A *pod group* is the pods of one namespace with the same label ``fluxqueue/pod-group``. It is matched once
there are as many pods as their annotation ``fluxqueue/pod-group-size`` states. Nothing is released before. An
incomplete group holds no nodes, so it may wait for any time. After a while an Event reports it.

A group that has nodes takes a pod only by its slots: the pod gets a free slot that was matched for exactly
its size, or it is matched alone. So a user who borrows the name of somebody else's group gains nothing: there
is no slot for the pod, or it fills one whose pod is gone. A group ends with its slots. Pods that come later
begin a new group.

A *gang* is the pods of a Deployment, ReplicaSet or StatefulSet whose template has the annotation
``fluxqueue/gang: "true"``. They start together for the first time. A StatefulSet may create only its first
pod until that is ready, so number and size of the pods are those of the owner.

A *JobSet* is the pods of all its Jobs, which it resumes itself, so that they come gated. It is complete when
all its Jobs exist, and all the pods that they still run at once. If it starts its Jobs one after another, it
is complete when all pods of the Jobs that have begun exist. Slots for the others are matched together with
theirs (`fluxqueue.queue.model.later_pods`).

A gang of another project (`fluxqueue.queue.model.sources`) is the pods that belong together by its labels or
controllers. It is complete when the pods that it says must start together exist. More pods than these are
matched one by one once it has started.

A wrong label or size is reported for the whole group, since nobody knows which of its pods is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api import names
from fluxqueue.api.bounds import max_pods
from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.jobs import Job
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.later_pods import LaterPods, later_pods
from fluxqueue.queue.model.pods import age, controlling_job
from fluxqueue.queue.model.records import UNREAD, NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner, replica_owner_of
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.registry import source_of_job, source_of_object, source_of_pod

__all__ = [
    "GROUP_UID",
    "JOB_SET",
    "OVERDUE_S",
    "POD_GROUP",
    "REPLACED_WITHIN",
    "GatheredGroup",
    "GroupKey",
    "awaits_replaced_pods",
    "first_pod_of",
    "gather",
    "gather_gang",
    "gather_jobset",
    "group_key",
    "group_of",
    "group_of_job",
    "group_of_workload",
    "is_pod_group",
    "jobset_of",
    "may_await_wanted_pods",
    "owner_of_group",
    "uid_of_group",
]

POD_GROUP = "PodGroup"
"""Kind of a pod group's workload."""

JOB_SET = "JobSet"
_JOBSET_GROUP = "jobset.x-k8s.io/"

GROUP_UID = "group-"
"""Prefix of the uid of a group's workload. The uid of its first pod follows."""
_OF_COMPOSITE = "."

OVERDUE_S = 600.0
"""A group that is incomplete for this many seconds is reported as late, with an Event of its own."""

REPLACED_WITHIN = timedelta(seconds=10)
_WANTED_FOR = timedelta(minutes=10)
"""How long a group whose pods were deleted, so that its owner replaces them,
waits for these pods before it ends."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Identifies a group within the cluster.

    Attributes
    ----------
    namespace, name
        Of the group.
    kind
        That of its owner, or `POD_GROUP`.
    source
        The source that knows it, if another project wrote it; empty for others.
    """

    namespace: str
    name: str
    kind: str = POD_GROUP
    source: str = ""


@dataclass(frozen=True, slots=True)
class GatheredGroup:
    """A group that has no nodes yet, as far as it has come together.

    Attributes
    ----------
    members
        Its pods, the oldest first, at most ``size``.
    excess
        More pods that carry its name.
    size
        How many pods belong to it; as many as exist, if that is not known.
    reason, message
        Why it cannot be matched (`Reason.NONE`: it can).
    alike
        True if all ``size`` pods are like the first member, whether they exist yet or not.
    metadata
        Of the object that the group belongs to, which counts after that of its pods; None if there is none.
    later_pods
        Pods that are created only once others run; ``size`` counts them.
    domain
        Label of nodes that must have one value on all its nodes; empty: any nodes.
    beside
        Properties that its nodes must have, because a group that started before is there.
    again_s
        It is read again after so many seconds; 0: only after a change of its pods or objects.
    """

    members: tuple[Pod, ...]
    excess: tuple[Pod, ...]
    size: int
    reason: Reason = Reason.NONE
    message: str = ""
    alike: bool = False
    metadata: ObjectMeta | None = None
    later_pods: tuple[LaterPods, ...] = ()
    domain: str = ""
    beside: tuple[str, ...] = ()
    again_s: float = 0

    @property
    def generation(self) -> int:
        """A number that changes with the pods that belong to it, so that a match for other pods is not
        granted.
        """
        if self.alike:
            return self.size
        known = sorted(pod.metadata.uid for pod in self.members)
        return zlib.crc32("\n".join([*known, *(str(each.pods) for each in self.later_pods)]).encode())


def group_of(pod: Pod, job: Job | None = None) -> GroupKey | None:
    """Return the group that a pod belongs to, or None.

    The pods of a Job belong to its JobSet, if it has one, whatever group they name. The JobSet is read from
    the pod's label, and checked against the Job if that is known, since any user may write a label.
    """
    meta = pod.metadata
    if controlling_job(pod) is not None:
        jobset = meta.label(names.JOBSET_NAME_LABEL)
        if jobset:
            return (
                GroupKey(meta.namespace, jobset, JOB_SET) if job is None or jobset_of(job) == jobset else None
            )
        return _group_of_source(meta.namespace, source_of_pod(pod, job))
    if name := meta.label(names.POD_GROUP_LABEL):
        return GroupKey(meta.namespace, name)
    if (key := _group_of_source(meta.namespace, source_of_pod(pod))) is not None:
        return key
    if meta.annotation(names.GANG_ANNOTATION) == "true" and (replicas := replica_owner_of(pod)) is not None:
        return GroupKey(replicas.namespace, replicas.name, replicas.kind)
    return None


def uid_of_group(key: GroupKey, first: Pod) -> str:
    """Return the identity of a group for as long as it exists: that of its first pod, with a prefix.
    A pod may be the first of several composites in turn, as their parents come, so these are told apart.
    """
    uid = f"{GROUP_UID}{first.metadata.uid}"
    if key.source != COMPOSITE_POD_GROUPS.name:
        return uid
    return f"{uid}{_OF_COMPOSITE}{zlib.crc32(key.name.encode()):08x}"


def first_pod_of(uid: str) -> str:
    """Return the uid of the pod that was the first of a group when that got its uid; other uids as they
    are.
    """
    return uid.removeprefix(GROUP_UID).partition(_OF_COMPOSITE)[0]


def owner_of_group(key: GroupKey) -> ReplicaOwner | None:
    """Return the owner of a gang; None for other groups."""
    return (
        None
        if key.source or key.kind in (POD_GROUP, JOB_SET)
        else ReplicaOwner(key.namespace, key.kind, key.name)
    )


def jobset_of(job: Job) -> str | None:
    """Return the name of the JobSet that controls a Job, or None."""
    owner = job.metadata.controller
    return (
        owner.name
        if owner is not None and owner.kind == JOB_SET and owner.api_version.startswith(_JOBSET_GROUP)
        else None
    )


def group_of_job(job: Job) -> GroupKey | None:
    """Return the group of a Job whose controller resumes it itself, so that its pods come gated:
    a JobSet, or a gang of another project.
    """
    namespace = job.metadata.namespace
    if (jobset := jobset_of(job)) is not None:
        return GroupKey(namespace, jobset, JOB_SET)
    return _group_of_source(namespace, source_of_job(job))


def group_key(workload: Workload | NewWorkload) -> GroupKey:
    """Return the key of a group's workload."""
    source = source_of_object(workload.api_version, workload.kind)
    return GroupKey(
        workload.namespace, workload.name, workload.kind, source.name if source is not None else ""
    )


def group_of_workload(workload: Workload) -> GroupKey | None:
    """Return the key of a group's workload; None for other workloads."""
    return group_key(workload) if workload.release_mode is ReleaseMode.GROUP else None


def awaits_replaced_pods(group: Workload, now: datetime) -> bool:
    """True if a group without pods may get those that replace its own in a moment."""
    until = group.requeue_state.not_before
    return until is not None and now < until <= now + REPLACED_WITHIN


def may_await_wanted_pods(group: Workload, now: datetime) -> bool:
    """True if a preempted group without pods may still wait for an owner that wants pods:
    none came since it lost its nodes.
    """
    until = group.requeue_state.not_before
    unread = group.reason is Reason.PREEMPTED and group.generation == UNREAD
    return unread and until is not None and now < until + _WANTED_FOR


def is_pod_group(workload: Workload) -> bool:
    """True for the workload of a pod group: pods with our own label, not with that of another project."""
    return workload.release_mode is ReleaseMode.GROUP and group_key(workload) == GroupKey(
        workload.namespace, workload.name
    )


def gather(key: GroupKey, pods: Iterable[Pod], since: datetime | None, now: datetime) -> GatheredGroup | None:
    """Gather a pod group that has no nodes yet; None if there are no pods.

    Parameters
    ----------
    key
        Which.
    pods
        All pods that name it and wait: gated, and not being deleted.
    since
        When the group got its row; None if it is new.
    now
        On the same clock.
    """
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    where = f"pod group {key.namespace}/{key.name}"
    size = _stated_size(waiting)
    if isinstance(size, str):
        return _invalid(waiting, f"{where}: {size}")
    members, excess = tuple(waiting[:size]), tuple(waiting[size:])
    if queues := _different(members):
        return GatheredGroup(
            members,
            excess,
            size,
            Reason.INVALID_REQUEST,
            f"{where}: its pods name different queues, {queues}: name one",
        )
    if len(members) == size:
        return GatheredGroup(members, excess, size)
    message = f"{where} has {len(members)} of {size} pods: it can start when all are there"
    if since is not None and (now - since).total_seconds() >= OVERDUE_S:
        message = (
            f"{where} has had only {len(members)} of {size} pods for more than {OVERDUE_S / 60:.0f} minutes: "
            "create the others, or delete these; none is started before all are there"
        )
    return GatheredGroup(members, excess, size, Reason.WAITING_FOR_GROUP, message)


def _stated_size(pods: Sequence[Pod]) -> int | str:
    """Return the size that the pods of a group name, or what is wrong with it."""
    annotation = names.POD_GROUP_SIZE_ANNOTATION
    sizes: dict[int, str] = {}
    for pod in pods:
        text = pod.metadata.annotation(annotation)
        if text is None:
            continue
        try:
            sizes.setdefault(parse_group_size(text), pod.metadata.name)
        except InvalidGroupSize as error:
            return f"annotation {annotation} of pod {pod.metadata.name}: {error}"
    if not sizes:
        return f"no pod says how many belong to it: set the annotation {annotation}"
    if len(sizes) > 1:
        stated = ", ".join(f"{size} (pod {name})" for size, name in sorted(sizes.items()))
        return f"its pods name different sizes, {stated}: write the same {annotation} on all"
    (size,) = sizes
    return size


def gather_gang(pods: Iterable[Pod], owner: ScaledWorkload | None) -> GatheredGroup | None:
    """Gather the first pods of an owner: as many as it wants, all like the one that exists.
    None if there are no pods.
    """
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    size = max(owner.spec.size if owner is not None else 0, len(waiting))
    return GatheredGroup(tuple(waiting), (), size, alike=True)


def gather_jobset(
    key: GroupKey, pods: Iterable[Pod], jobs: Sequence[Job], jobset: JobSet | None = None
) -> GatheredGroup | None:
    """Gather the pods of a JobSet's Jobs; None if there are no pods.

    Parameters
    ----------
    key
        Which.
    pods
        All its pods that wait: gated, and not being deleted.
    jobs
        Its Jobs, finished ones too. Each carries their total number, if the JobSet controller wrote it.
    jobset
        As it is now, if it can be read. It says which Jobs are created only once others run.
    """
    waiting = _oldest_first(pods)
    if not waiting:
        return None
    where = f"JobSet {key.namespace}/{key.name}"
    metadata = next(iter(jobs)).metadata if jobs else None
    total = max(
        (int(text) for job in jobs if (text := _total(job)) and text.isdecimal() and len(text) < 7),
        default=len(jobs),
    )
    later = tuple(later_pods(jobset, jobs))
    begun = [job for job in jobs if not job.finished and not (later and job.spec.suspend)]
    size = max(sum(pods_wanted(job) for job in begun), 1)
    if later:
        slots = size + sum(each.pods for each in later)
        if slots > max_pods():
            return _invalid(
                waiting,
                f"{where} asks for {slots} pods: at most {max_pods()} start as one, so make it smaller",
            )
    elif len(jobs) < total:
        message = f"{where} has {len(jobs)} of {total} Jobs: it can start when all are there"
        return GatheredGroup(tuple(waiting), (), size, Reason.WAITING_FOR_GROUP, message, metadata=metadata)
    if len(waiting) < size:
        message = f"{where} has {len(waiting)} of {size} pods: it can start when all are there"
        return GatheredGroup(tuple(waiting), (), size, Reason.WAITING_FOR_GROUP, message, metadata=metadata)
    return GatheredGroup(
        tuple(waiting),
        (),
        len(waiting) + sum(each.pods for each in later),
        metadata=metadata,
        later_pods=later,
    )


def _group_of_source(namespace: str, found: tuple[GangSource, str] | None) -> GroupKey | None:
    return GroupKey(namespace, found[1], found[0].kind, found[0].name) if found is not None else None


def _total(job: Job) -> str | None:
    meta = job.metadata
    return meta.label(names.JOBSET_TOTAL_KEY) or meta.annotation(names.JOBSET_TOTAL_KEY)


def _oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=age)


def _invalid(waiting: Sequence[Pod], message: str) -> GatheredGroup:
    return GatheredGroup(tuple(waiting), (), len(waiting), Reason.INVALID_REQUEST, message)


def _different(members: Sequence[Pod]) -> str:
    """Return the queues that its pods name, if they differ; else an empty text."""
    queues = {pod.metadata.label(names.QUEUE_LABEL) or "none" for pod in members}
    return ", ".join(sorted(queues)) if len(queues) > 1 else ""
