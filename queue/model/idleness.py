"""For how long running work has not been used, as the answers of a monitoring show it, and what is said of
it.

Only what answers show counts. The time between two answers is idle if both show that the work is not used and
they are close to each other; else it is not counted. So a hole in the answers ends nothing, and makes the end
later. One answer that shows use begins anew, and so do another allocation and another set of pods.

That work of any priority may preempt it is stored (`RequeueState.unused`), so another leader need not begin
anew. But it counts only for the leader whose answers show it (`Unused.seen_by`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec

from fluxqueue.api.fluxjobs import IDLE_SINCE, State
from fluxqueue.api.pods import Pod
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.consolidations import is_being_moved
from fluxqueue.queue.model.records import Epoch, FluxionJobId, Workload
from fluxqueue.queue.model.requeue_records import Unused

__all__ = [
    "IdleRules",
    "Idleness",
    "PodName",
    "PrometheusRules",
    "Run",
    "ends_for_good",
    "is_idle",
    "is_unused",
    "not_idle",
    "waits_last",
]

PodName = tuple[str, str]
"""Namespace and name."""
Run = tuple[FluxionJobId | None, frozenset[str]]
"""The allocation of work, and the uids of its pods: another run begins anew."""


class PrometheusRules(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Who is asked.

    Attributes
    ----------
    url
        Where Prometheus answers, such as ``https://prometheus.monitoring:9090``; empty: nobody is asked.
    ca_file
        Authority that has signed its certificate; empty: those of the system.
    token_file
        Token that is sent to it; empty: none.
    """

    url: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s@?#]+)?$")] = ""
    ca_file: str = ""
    token_file: str = ""


class IdleRules(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """When running work is idle, and what becomes of it (docs/idle.md).

    Attributes
    ----------
    prometheus
        Who is asked.
    query
        A query in PromQL: the use of each pod, with the labels ``namespace`` and ``pod``.
    below
        Work is idle while the use of each of its pods is below this.
    for_seconds
        For how long it is idle until it is told.
    then
        ``notice`` only tells; ``graceSeconds`` after it was told ``end`` ends it, and with ``preemptible``
        work of any priority may preempt it.
    grace_seconds
        For how long it may be idle after it was told.
    every_seconds
        How often Prometheus is asked.
    may_opt_out
        True if the annotation ``fluxqueue/keep-idle`` counts.
    """

    prometheus: PrometheusRules = PrometheusRules()
    query: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    below: float = 5.0
    for_seconds: Annotated[int, msgspec.Meta(ge=1)] = 3600
    then: Literal["notice", "end", "preemptible"] = "notice"
    grace_seconds: Annotated[int, msgspec.Meta(ge=1)] = 3600
    every_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 60
    may_opt_out: bool = False

    @property
    def most_apart_s(self) -> float:
        """How far apart two answers may be for the time between them to count."""
        return 2.5 * self.every_seconds


@dataclass(frozen=True, slots=True)
class Idleness:
    """Work that answers show as idle.

    Attributes
    ----------
    run
        Which run of it.
    since, last
        Times of the first and the last of these answers.
    seen_s
        For how long they show it, without holes.
    told_s
        The same when it was told; None: it is not told yet.
    ends
        True if it is ended, or may be preempted, when its grace is over.
    """

    run: Run
    since: datetime
    last: datetime
    seen_s: float = 0.0
    told_s: float | None = None
    ends: bool = False

    def seen(self, now: datetime, rules: IdleRules) -> Idleness:
        """Return it after another answer that shows it as idle."""
        step_s = (now - self.last).total_seconds()
        counted_s = step_s if 0 <= step_s <= rules.most_apart_s else 0.0
        return replace(self, last=max(now, self.last), seen_s=self.seen_s + counted_s)

    def is_to_be_told(self, rules: IdleRules) -> bool:
        """True if it is idle for long enough, and was not told."""
        return self.told_s is None and self.seen_s >= rules.for_seconds

    def told(self, *, ends: bool) -> Idleness:
        """Return it as told now."""
        return replace(self, told_s=self.seen_s, ends=ends)

    def left_s(self, rules: IdleRules) -> float:
        """Return for how many seconds more answers have to show it as idle until its grace is over."""
        return (self.told_s or 0.0) + rules.grace_seconds - self.seen_s

    def is_over(self, rules: IdleRules) -> bool:
        """True if it was told that it ends, and its grace is over."""
        return self.ends and self.left_s(rules) <= 0

    def words(self, rules: IdleRules, now: datetime, *, last: bool = False) -> str:
        """Return what is said of it once it was told; with `last` in the sentence that it was ended."""
        words = f"{IDLE_SINCE} {time_text(self.since)} (use below {rules.below:g})"
        if is_known := self.is_known(rules, now):
            at = time_text(self.last + timedelta(seconds=self.left_s(rules)))
        else:
            words += f" until {time_text(self.last)}, and its use is not known since"
        if not self.ends or last:
            return words
        if rules.then == "end":
            ends = f"it is ended from {at} on, unless it is used before" if is_known else "it is not ended"
        elif is_known:
            begins = "" if self.is_over(rules) else f"from {at} on "
            ends = f"{begins}work of any priority may preempt it, unless it is used before"
        else:
            ends = "it is not preempted for that"
        return f"{words}; {ends}" if is_known else f"{words}; {ends} while that is so"

    def is_known(self, rules: IdleRules, now: datetime) -> bool:
        """True if an answer of a moment ago shows it."""
        return (now - self.last).total_seconds() <= rules.most_apart_s

    def stored(self, rules: IdleRules, now: datetime, epoch: Epoch) -> Unused | None:
        """Return what is stored of it by a leader; None if it may not be preempted for that."""
        if rules.then != "preemptible" or not self.is_over(rules):
            return None
        jobid, pods = self.run
        return Unused(
            jobid=jobid or 0,
            pods=_hash(pods),
            since=self.since,
            seen_at=self.last,
            seen_by=epoch if self.is_known(rules, now) else 0,
        )

    @classmethod
    def restored(cls, unused: Unused | None, run: Run, rules: IdleRules) -> Idleness | None:
        """Return what another leader stored of a run; None if nothing."""
        jobid, pods = run
        if (
            rules.then != "preemptible"
            or unused is None
            or unused.jobid != jobid
            or unused.pods != _hash(pods)
        ):
            return None
        seen_s = float(rules.for_seconds + rules.grace_seconds)
        return cls(run, unused.since, unused.seen_at, seen_s, float(rules.for_seconds), ends=True)


def is_unused(workload: Workload, epoch: Epoch) -> bool:
    """True if work of any priority may preempt running work, because a leader sees it as idle now."""
    unused = workload.requeue_state.unused
    return unused is not None and (unused.jobid, unused.seen_by) == (workload.jobid, epoch)


def waits_last(workload: Workload) -> bool:
    """True for work that waits behind all other, because it was idle when it was preempted:
    what it was preempted for would lose its nodes to it at once. What is moved restarts at once.
    """
    was_idle = workload.state is State.PENDING and workload.requeue_state.unused is not None
    return was_idle and not is_being_moved(workload)


def is_idle(pods: Sequence[Pod], use: Mapping[PodName, float], below: float) -> bool | None:
    """Return whether work is idle: the use of each of its pods is known and below the limit.

    Returns
    -------
    bool or None
        None if that is not known: a pod has no value, or no node yet, and none of the others is used.
    """
    values = [use.get((pod.metadata.namespace, pod.metadata.name)) for pod in pods]
    if any(value is not None and not value < below for value in values):
        return False
    known = bool(pods) and None not in values and all(pod.spec.node_name for pod in pods)
    return True if known else None


def ends_for_good(kind: str, pods: Sequence[Pod]) -> bool:
    """True if work of a kind can be ended: no owner that wants it to go on for ever creates its pods
    again.
    """
    return kind == "Job" or all(pod.spec.ends or pod.metadata.controller is None for pod in pods)


def not_idle(_workload: Workload) -> str:
    """Return what is said of idle work where nobody looks for it: nothing."""
    return ""


def _hash(pods: frozenset[str]) -> str:
    return hashlib.blake2s(" ".join(sorted(pods)).encode(), digest_size=8).hexdigest()
