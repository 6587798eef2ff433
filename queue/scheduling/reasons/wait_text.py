"""The words of reasons that a cycle gives: reservations, limits, and what holds in general."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fluxqueue.fluxion.messages import AdvanceReservation, MatchResult
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.budgets import USED_UP
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import waiting_reason

__all__ = ["RESERVED", "at_limit", "in_general", "names_reservation", "reservation_reason", "reserved_words"]

_WORDS = re.compile(r"[^\s,;:]+(?::\d\d)*Z?")
RESERVED = "reserved for it from"


def names_reservation(message: str, reservation: AdvanceReservation) -> bool:
    """True if a message names an advance reservation, with one of its times if it names any."""
    words = _WORDS.findall(message)
    times = {word for word in words if word.endswith("Z")}
    edges = {
        f"{datetime.fromtimestamp(edge, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for time in reservation.times
        for edge in time
    }
    return reservation.name in words and (not times or not times.isdisjoint(edges))


def reservation_reason(workload: WorkloadId, answer: MatchResult) -> ReasonChange:
    """The reason of work that got a reservation."""
    text = reserved_words([share.node for share in answer.shares], answer.at)
    if answer.blocked_by:
        text = f"{answer.reason}; {text}"
    return ReasonChange(workload=workload, reason=waiting_reason(answer), message=text)


def reserved_words(nodes: Sequence[str], at: int) -> str:
    """Which nodes are reserved, and from when on."""
    start = datetime.fromtimestamp(at, UTC)
    subject, free = (
        (f"{len(nodes)} nodes are", "they are") if len(nodes) != 1 else (f"node {nodes[0]} is", "that is")
    )
    return f"{subject} {RESERVED} {start:%Y-%m-%dT%H:%M:%SZ} on: it starts then, or sooner if {free} free"


def at_limit(workload: Workload, quotas: Quotas, *, exact: bool) -> ReasonChange:
    """The limit that a workload is over, with both figures if that is asked for,
    or as it was found before.
    """
    if not exact and workload.reason in LIMIT_REASONS and USED_UP not in workload.message:
        return ReasonChange(workload=workload.id, reason=workload.reason, message=workload.message)
    over = quotas.reached(workload, exact=exact)
    return ReasonChange(workload=workload.id, reason=over.reason, message=over.message)


def in_general(workload: Workload, disciplines: Mapping[str, Discipline]) -> str:
    """Why work waits that was not matched."""
    if disciplines.get(workload.queue, Discipline()).reserves:
        return "its request does not fit now: smaller or shorter requests of its kind wait too"
    return f"waits its turn: the queue {workload.queue!r} is strictly first come, first served"
