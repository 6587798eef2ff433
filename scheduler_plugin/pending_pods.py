"""The released pods that are not bound: how often each was tried, and when it is reported what it waits for.

Pods come through one ordered watch, so a replica that sees a released pod has seen every earlier change of
pods. A node without enough room is therefore reported at once. Nodes and volumes come through other watches,
which may lag behind. A refusal because of them is checked again for a second before it is reported.

A pod that waits for its gang or for a volume is reported only after some seconds, because most waits are
shorter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from fluxqueue.scheduler_plugin.gangs import Member
from fluxqueue.scheduler_plugin.metrics import ATTEMPTS_OF_POD, PENDING, SLI_SECONDS, Result, attempted
from fluxqueue.scheduler_plugin.reports import PodScheduledReason, SchedulingReporter

__all__ = ["PendingPods", "earliest", "log_fields"]

LAG_S: Final = 1.0
"""How far the watches of nodes and volumes may lag behind that of pods."""
PATIENCE_S: Final = 5.0
"""How long a pod waits before the reason is reported."""
HAND_OVER_S: Final = 10.0
"""How long a gang with a reported refusal is left to the queue, which evicts it.
Bound meanwhile, it could start in part."""

_MOST_ATTEMPTS_SHOWN: Final = 16

log: Final = structlog.get_logger(__name__)


@dataclass(slots=True)
class _PendingPod:
    """One pod: how often it was tried, since when its node refuses it,
    and in which of kube-scheduler's queues it would be.
    """

    attempts: int = 0
    refused_at: float | None = None
    reported_at: float | None = None
    queue: str = "active"


class PendingPods:
    """Counts attempts and reports why pods wait."""

    def __init__(self, reporter: SchedulingReporter, clock: Callable[[], float]) -> None:
        self._reporter = reporter
        self._clock = clock
        self._pods: dict[str, _PendingPod] = {}

    def export(self, invalid: Callable[[], int]) -> None:
        """Export how many pods wait, by queue; ``invalid`` counts those whose node cannot be read,
        which are unschedulable.
        """
        for queue in ("active", "gated"):
            PENDING.labels(queue).set_function(functools.partial(self.count, queue))
        PENDING.labels("unschedulable").set_function(lambda: self.count("unschedulable") + invalid())

    def count(self, queue: str) -> int:
        """Return how many pods are in a queue: active, gated or unschedulable."""
        return sum(pod.queue == queue for pod in self._pods.values())

    def add(self, uid: str) -> None:
        """Keep a record for a pod; one that has a record keeps it."""
        self._pods.setdefault(uid, _PendingPod())

    def drop(self, uid: str) -> None:
        """Drop the record of a pod that is bound or gone."""
        self._pods.pop(uid, None)

    def tried(self, member: Member) -> int:
        """Count an attempt to bind a pod; return how many there were."""
        pod = self._pod(member)
        pod.attempts += 1
        pod.refused_at, pod.queue = None, "active"
        return pod.attempts

    def bound(self, member: Member, attempts: int, attempt_s: float) -> None:
        """Count a pod as bound after so many attempts, the last of which took ``attempt_s`` seconds."""
        attempted(Result.SCHEDULED, attempt_s)
        SLI_SECONDS.labels(str(min(attempts, _MOST_ATTEMPTS_SHOWN))).observe(self._clock() - member.seen_at)
        ATTEMPTS_OF_POD.observe(attempts)
        log.debug("pod.bound", **log_fields(member))

    def refuse(self, member: Member, message: str, started: float, *, may_lag: bool) -> float | None:
        """Report that the node of a pod does not take it, unless a lagging watch may be the reason.

        Parameters
        ----------
        member
            The pod.
        message
            The obstacle, in a sentence.
        started
            When the check began, in monotonic seconds.
        may_lag
            True if the obstacle comes from another watch than that of pods.

        Returns
        -------
        float or None
            After how many seconds to check again. None if the refusal was reported: a change triggers the
            next check.
        """
        pod, now, node = self._pod(member), self._clock(), member.assignment.node
        if pod.refused_at is None or pod.refused_at < member.seen_at:
            pod.refused_at, pod.queue = now, "active"
        if may_lag and now - pod.refused_at < LAG_S:
            return LAG_S - (now - pod.refused_at)
        if pod.queue != "unschedulable":
            pod.queue = "unschedulable"
            pod.attempts += 1
            attempted(Result.UNSCHEDULABLE, now - started)
            log.info("pod.refused", **log_fields(member), message=message)
        if pod.reported_at is None or pod.reported_at < member.seen_at:
            pod.reported_at = now
        self._reporter.unscheduled(
            member.pod,
            PodScheduledReason.UNSCHEDULABLE,
            message if node in message else f"node {node}: {message}",
        )
        return None

    def wait(self, members: Sequence[Member], reason: str, message: str) -> float | None:
        """Report what pods wait for, once they have waited long enough;
        return after how many seconds the next one has.
        """
        now, due_s = self._clock(), []
        for member in members:
            self._pod(member).queue = "gated"
            left_s = member.seen_at + PATIENCE_S - now
            if left_s > 0:
                due_s.append(left_s)
            else:
                self._reporter.unscheduled(member.pod, reason, message)
        return earliest(due_s)

    def handed_over_s(self, members: Sequence[Member]) -> float:
        """Return for how many seconds more a gang is left to the queue because a refusal of one of its pods
        was reported.
        """
        reported = [(self._pod(member).reported_at, member.seen_at) for member in members]
        since = max((at for at, seen_at in reported if at is not None and at >= seen_at), default=None)
        return since + HAND_OVER_S - self._clock() if since is not None else 0.0

    def _pod(self, member: Member) -> _PendingPod:
        """Return the record of a pod; for a pod that is gone meanwhile a new one that is not kept."""
        return self._pods.get(member.uid) or _PendingPod()


def earliest(seconds: Iterable[float | None]) -> float | None:
    """Return the smallest of these numbers, ignoring None; None if there is none."""
    return min((each for each in seconds if each is not None), default=None)


def log_fields(member: Member) -> dict[str, str]:
    """Return what identifies a pod in the log."""
    meta = member.pod.metadata
    return {
        "pod": f"{meta.namespace}/{meta.name}",
        "uid": meta.uid,
        "node": member.assignment.node,
        "allocation": member.assignment.allocation,
    }
