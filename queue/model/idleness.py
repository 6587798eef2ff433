"""For how long running work has not been used, as the answers of a monitoring show it, and what is said of
it.

Only what answers show counts. The time between two answers is idle if both show that the work is not used and
they are close to each other; else it is not counted. So a hole in the answers ends nothing, and makes the end
later. One answer that shows use begins anew, and so do another allocation and another set of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec

from fluxqueue.api.fluxjobs import IDLE_SINCE
from fluxqueue.api.pods import Pod
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.records import FluxionJobId, Workload

__all__ = ["IdleRules", "Idleness", "PodName", "PrometheusRules", "ends_for_good", "is_idle", "not_idle"]

PodName = tuple[str, str]
"""Namespace and name."""


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
        ``notice`` only tells; ``end`` ends it ``graceSeconds`` after it was told.
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
    then: Literal["notice", "end"] = "notice"
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
        Its allocation, and the uids of its pods: another run begins anew.
    since, last
        Times of the first and the last of these answers.
    seen_s
        For how long they show it, without holes.
    told_s
        The same when it was told; None: it is not told yet.
    ends
        True if it is ended when its grace is over.
    """

    run: tuple[FluxionJobId | None, frozenset[str]]
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
        ends = f"it is ended from {time_text(self.last + timedelta(seconds=self.left_s(rules)))} on, "
        ends += "unless it is used before"
        if (now - self.last).total_seconds() > rules.most_apart_s:
            words += f" until {time_text(self.last)}, and its use is not known since"
            ends = "it is not ended while that is so"
        return f"{words}; {ends}" if self.ends and not last else words


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
