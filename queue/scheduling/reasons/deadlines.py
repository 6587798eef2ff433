"""Which waiting work will miss its deadline (``fluxqueue/deadline``), as it is planned now.

A deadline keeps nothing from starting and ends nothing: stated durations are mostly longer than needed. The
reason is there so that a person can act in time. It replaces reasons that say that nodes are missing, never
one that says what else must happen before.

The message is that of the time when it was found. Estimates move every few seconds, and each change of the
message would be an Event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Deadlines", "missed_deadline"]

_WAITING = frozenset({Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION, Reason.NODES_UNAVAILABLE})


def missed_deadline(workload: Workload, estimate: Estimate | None, now: datetime) -> str:
    """Return why a pending workload cannot end by its deadline; empty if it can, has none, or nothing is
    known.

    Parameters
    ----------
    workload
        Pending.
    estimate
        Of its start. Without one it is compared with a start now.
    now
        The time of the database.
    """
    deadline = workload.start_conditions.deadline
    if deadline is None:
        return ""
    start = max(estimate.eta, now) if estimate is not None and estimate.eta is not None else now
    try:
        end = start + timedelta(seconds=workload.duration_s or 0)
    except OverflowError:
        return ""
    if end <= deadline:
        return ""
    by = _due(workload, deadline)
    if start == now:
        return f"{by}, and even if it started now it would not be"
    return f"{by}, and is expected to start at {_time(start)} and to end at {_time(end)}"


class Deadlines:
    """Finds waiting work that will miss its deadline.

    Parameters
    ----------
    ledger
        The workloads.
    estimates
        When pending workloads are expected to start; updated by the scheduler.
    """

    def __init__(self, ledger: Ledger, estimates: Mapping[WorkloadId, Estimate]) -> None:
        self._ledger = ledger
        self._estimates = estimates
        self._with_deadline: set[WorkloadId] = set()
        for workload in ledger.all():
            self.workload_changed(workload.id)

    def refine(self, changes: Sequence[ReasonChange]) -> list[ReasonChange]:
        """Replace the reasons of work that waits for nodes and will miss its deadline."""
        if not self._with_deadline:
            return list(changes)
        now = self._ledger.wall()
        return [
            self._refined(change, now) if change.workload in self._with_deadline else change
            for change in changes
        ]

    def names_another(self, workload: Workload) -> bool:
        """True if a workload says that it misses a deadline that it no longer has: its user edited it."""
        return workload.reason is Reason.DEADLINE_UNREACHABLE and not _names_its_own(workload)

    async def report(self) -> bool:
        """Compare all deadlines with new estimates, and store what changed.
        Return True if the next cycle is to say why work waits.
        """
        if not self._with_deadline:
            return False
        now, changes = self._ledger.wall(), list[ReasonChange]()
        for workload_id in sorted(self._with_deadline):
            workload = self._ledger.get(workload_id)
            if workload is None or workload.reason not in _WAITING | {Reason.DEADLINE_UNREACHABLE}:
                continue
            missed = self._judge(workload, now)
            if missed and workload.reason is not Reason.DEADLINE_UNREACHABLE:
                changes.append(
                    ReasonChange(workload=workload_id, reason=Reason.DEADLINE_UNREACHABLE, message=missed)
                )
            elif not missed and workload.reason is Reason.DEADLINE_UNREACHABLE:
                changes.append(ReasonChange(workload=workload_id, reason=Reason.NONE, message=""))
        await self._ledger.set_reasons(changes)
        return any(each.reason is Reason.NONE for each in changes)

    def _refined(self, change: ReasonChange, now: datetime) -> ReasonChange:
        workload = self._ledger.get(change.workload)
        if workload is None or change.reason not in _WAITING:
            return change
        missed = self._judge(workload, now)
        return (
            ReasonChange(workload=workload.id, reason=Reason.DEADLINE_UNREACHABLE, message=missed)
            if missed
            else change
        )

    def _judge(self, workload: Workload, now: datetime) -> str:
        """Why a workload misses its deadline: as it was found, until an estimate says that it can be met or
        the deadline changes.
        """
        estimate = self._estimates.get(workload.id)
        missed = missed_deadline(workload, estimate, now)
        known = workload.reason is Reason.DEADLINE_UNREACHABLE and _names_its_own(workload)
        unsure = estimate is None or estimate.eta is None
        return workload.message if known and (missed or unsure) else missed

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the pending work that has a deadline."""
        workload = self._ledger.get(workload_id)
        pending = workload if workload is not None and workload.state is State.PENDING else None
        if pending is not None and (
            pending.start_conditions.deadline is not None or pending.reason is Reason.DEADLINE_UNREACHABLE
        ):
            self._with_deadline.add(workload_id)
        else:
            self._with_deadline.discard(workload_id)


def _due(workload: Workload, deadline: datetime) -> str:
    return f"{workload.ref} is to be done by {_time(deadline)}"


def _names_its_own(workload: Workload) -> bool:
    """True if the message is about the deadline that the workload has now."""
    deadline = workload.start_conditions.deadline
    return deadline is not None and workload.message.startswith(_due(workload, deadline))


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
