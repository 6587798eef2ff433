"""Pods that belong together although they were made one by one.

Pods with the label ``fluxqueue/pod-group`` in one namespace are one group, and are matched as one unit once there are as many as their
annotation ``fluxqueue/pod-group-size`` says. A group of the same name in another namespace is another group. Nothing is let go before
the group is complete: a group that stays incomplete holds no nodes, so it may wait for as long as it likes, and after a while it is said
aloud.

Who belongs to a group that has its nodes already is decided by place alone: a pod takes a place that is free and was matched for exactly
its size, or it is matched on its own. So whoever borrows the name of a foreign group gains nothing by it: there is no place for him, or he
fills one whose pod is gone. A group ends with its places; pods that come later begin a group of their own.

A label or a size that makes no sense is said of the whole group, since nobody knows which of its pods is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import ReleaseMode, Workload

__all__ = ["OVERDUE_S", "POD_GROUP", "Gathering", "GroupKey", "gather", "group_of", "group_of_workload"]

POD_GROUP = "PodGroup"
"""Kind of the workload that a pod group is."""

OVERDUE_S = 600.0
"""A group that is incomplete for so long is said to be late, with an Event of its own."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group: a name means another one in each namespace."""

    namespace: str
    name: str


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
    """

    members: tuple[Pod, ...]
    surplus: tuple[Pod, ...]
    size: int
    reason: Reason = Reason.NONE
    message: str = ""

    @property
    def uid(self) -> str:
        """Identity of the group for as long as it exists: that of its first pod, told apart from the pod's own."""
        return f"group-{self.members[0].metadata.uid}"

    @property
    def generation(self) -> int:
        """Changes with the pods that belong to it: what was matched for others is not granted."""
        return zlib.crc32("\n".join(sorted(pod.metadata.uid for pod in self.members)).encode())


def group_of(pod: Pod) -> GroupKey | None:
    """The group a pod names. The pods of a Job are the Job's, whatever they name."""
    meta = pod.metadata
    name = meta.label(names.POD_GROUP_LABEL)
    owner = meta.controller
    if not name or (owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")):
        return None
    return GroupKey(meta.namespace, name)


def group_of_workload(workload: Workload) -> GroupKey | None:
    """The group a workload is, or None if it is no group."""
    return GroupKey(workload.namespace, workload.name) if workload.release_mode is ReleaseMode.GROUP else None


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
    waiting = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
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


def _invalid(waiting: Sequence[Pod], message: str) -> Gathering:
    return Gathering(tuple(waiting), (), len(waiting), Reason.INVALID_REQUEST, message)


def _different(members: Sequence[Pod]) -> str:
    """The queues its pods name, if they are not the same."""
    queues = {pod.metadata.label(names.QUEUE_LABEL) or "none" for pod in members}
    return ", ".join(sorted(queues)) if len(queues) > 1 else ""
