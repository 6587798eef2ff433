"""The status of a workload, as the client returns it:
that of its FluxJob, with times as `datetime` and nodes as names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.jobs import Job

__all__ = ["WorkStatus", "status_of", "status_of_job"]


@dataclass(frozen=True)
class WorkStatus:
    """The status of a workload at one time.

    Attributes
    ----------
    state
        ``Pending``, ``Allocated``, ``Running``, ``Draining``, or an end: ``Completed``, ``Failed``,
        ``Cancelled``.
    reason, message
        Why it waits, from a closed set (docs/reference/objects.md), and the sentence with figures; empty if
        it does not wait.
    queue, priority, held
        As they are now.
    position
        Place in its queue, counted from 1, for the first of each queue.
    eta, eta_soonest
        The planned start, and the start if running work ends early; None if there is no estimate (yet).
    reserved
        True if nodes are reserved for `eta`.
    nodes
        The node of each rank; empty before the allocation.
    submitted_at, allocated_at, started_at, finished_at
        When that happened, timezone-aware; None before.
    outcome
        How it ended: ``Succeeded``, ``Failed``, ``Cancelled``, ``TimeLimit`` or ``Unknown``.
    requeues
        How often it lost its nodes and waited again.
    """

    state: State = State.PENDING
    reason: str = ""
    message: str = ""
    queue: str = ""
    priority: int = 0
    held: bool = False
    position: int | None = None
    eta: datetime | None = None
    eta_soonest: datetime | None = None
    reserved: bool = False
    nodes: tuple[str, ...] = ()
    submitted_at: datetime | None = None
    allocated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: str = ""
    requeues: int = 0

    @property
    def ended(self) -> bool:
        """True if it has ended."""
        return self.state.ended

    @property
    def succeeded(self) -> bool:
        """True if it has ended with success."""
        return self.state is State.COMPLETED

    @property
    def started(self) -> bool:
        """True if its pods run or ran."""
        return self.state in (State.RUNNING, State.DRAINING, State.COMPLETED) or self.started_at is not None


def status_of(fluxjob: FluxJob) -> WorkStatus:
    """Return the status that a FluxJob shows."""
    status = fluxjob.status
    try:
        nodes = tuple(hostlists.decode(status.nodes)) if status.nodes else ()
    except hostlists.InvalidHostlist:
        nodes = ()
    return WorkStatus(
        state=State(status.state) if status.state in list(State) else State.PENDING,
        reason=status.reason,
        message=status.message,
        queue=fluxjob.spec.queue,
        priority=fluxjob.spec.priority,
        held=fluxjob.spec.hold,
        position=status.position,
        eta=_time(status.reserved_at or status.eta),
        eta_soonest=_time(status.eta_soonest),
        reserved=status.reserved_at is not None,
        nodes=nodes,
        submitted_at=_time(status.submitted_at or fluxjob.metadata.creation_timestamp),
        allocated_at=_time(status.allocated_at),
        started_at=_time(status.started_at),
        finished_at=_time(status.finished_at),
        outcome=status.outcome,
        requeues=status.requeues,
    )


def status_of_job(job: Job) -> WorkStatus:
    """Return what a Job itself tells while its FluxJob is not there (yet)."""
    created = _time(job.metadata.creation_timestamp)
    started, finished = _time(job.status.start_time), _time(job.status.completion_time)
    if job.status.has_condition("Complete"):
        return WorkStatus(
            State.COMPLETED,
            outcome="Succeeded",
            submitted_at=created,
            started_at=started,
            finished_at=finished,
        )
    if job.status.has_condition("Failed"):
        return WorkStatus(State.FAILED, outcome="Failed", submitted_at=created, started_at=started)
    return WorkStatus(submitted_at=created)


def _time(text: str | None) -> datetime | None:
    try:
        read = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return read if read is None or read.tzinfo else read.replace(tzinfo=UTC)
