"""The queue as one table: a row per FluxJob, ordered as a person asks.

The idea of the last column is that of `flux jobs`: what one wants to know depends on where the job is. While it waits that is the
reason and, where there is one, the start to be expected; while it runs its nodes; afterwards how it ended. Rows come in the order of
life: what runs, what waits in the queue's order, what has ended, newest first.

Pure functions of FluxJobs and a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.cli.tables import age, clock, columns, instant

__all__ = ["CELL_STYLES", "Selection", "headers", "info", "object_name", "row", "state_of", "table", "times"]

CELL_STYLES = {
    "Pending": "waits",
    "Allocated": "busy",
    "Running": "good",
    "Draining": "busy",
    "Completed": "dim",
    "Failed": "bad",
    "Cancelled": "dim",
}
_RANK = {State.RUNNING: 0, State.DRAINING: 0, State.ALLOCATED: 1, State.PENDING: 2}
_NODES_WIDTH = 40
_FAR = 1 << 62


@dataclass(frozen=True)
class Selection:
    """Which rows to show; empty means all."""

    queue: str = ""
    states: frozenset[str] = frozenset()

    def takes(self, job: FluxJob) -> bool:
        """Whether the job is among them."""
        return (not self.queue or job.spec.queue == self.queue) and (not self.states or state_of(job).lower() in self.states)


def state_of(job: FluxJob) -> str:
    """The job's state; one that the queue has not seen yet is pending."""
    return job.status.state or State.PENDING


def object_name(job: FluxJob) -> str:
    """The user's object as kubectl takes it: ``job/lammps``."""
    ref = job.spec.object_ref
    return f"{ref.kind.lower()}/{ref.name}" if ref.kind else ""


def order(job: FluxJob) -> tuple[int, float, str, str]:
    """Sort key: what runs, then what waits by position and age, then what ended, newest first."""
    status = job.status
    rank = _RANK.get(State(state_of(job)), 3) if state_of(job) in list(State) else 3
    if rank == 3:
        ended = instant(status.finished_at)
        return rank, -ended.timestamp() if ended else 0.0, job.metadata.namespace, job.metadata.name
    if rank == 2 and status.position is not None:
        return rank, float(status.position), job.metadata.namespace, job.metadata.name
    since = instant(status.submitted_at or job.metadata.creation_timestamp)
    return rank, since.timestamp() if since and rank != 2 else float(_FAR), status.submitted_at or "", job.metadata.name


def times(job: FluxJob, now: datetime) -> tuple[str, str]:
    """How long it waited and how long it ran, both up to now if that still goes on."""
    status = job.status
    submitted = instant(status.submitted_at or job.metadata.creation_timestamp)
    started, finished = instant(status.started_at), instant(status.finished_at)
    waited = age(((started or finished or now) - submitted).total_seconds()) if submitted else ""
    ran = age(((finished or now) - started).total_seconds()) if started else ""
    return waited, ran


def info(job: FluxJob, now: datetime, *, wide: bool = False) -> str:
    """The last column.

    Parameters
    ----------
    job
        Any FluxJob.
    now
        For estimates.
    wide
        Add the reason's message, and every node.
    """
    status = job.status
    state = state_of(job)
    if state == State.PENDING:
        return _why_it_waits(job, now, wide=wide)
    if state in (State.COMPLETED, State.FAILED, State.CANCELLED):
        ended = status.outcome or state
        return f"{ended}: {status.message}" if status.message and (wide or state == State.FAILED) else ended
    nodes = status.nodes if wide else _short_nodes(status.nodes)
    return f"{nodes} ({status.reason})" if status.reason and nodes else nodes or status.reason


def _why_it_waits(job: FluxJob, now: datetime, *, wide: bool) -> str:
    status = job.status
    reason = status.reason or ("Held" if job.spec.hold else "")
    parts = [f"{reason}: {status.message}" if wide and status.message else reason]
    if job.spec.cancel:
        parts.append("being cancelled")
    if status.position is not None and status.reason != Reason.UNSATISFIABLE:
        parts.append(f"position {status.position}")
    expected = instant(status.reserved_at or status.eta)
    if expected is not None:
        word = "reserved" if status.reserved_at else "eta"
        left = (expected - now).total_seconds()
        parts.append(f"{word} in {age(left)}" if left >= 1 else f"{word} {clock(expected, now)}")
    return ", ".join(part for part in parts if part)


def _short_nodes(nodes: str) -> str:
    if len(nodes) <= _NODES_WIDTH:
        return nodes
    try:
        count = len(set(hostlists.decode(nodes)))
    except hostlists.InvalidHostlist:
        return f"{nodes[:_NODES_WIDTH]}+"
    return f"{nodes[:_NODES_WIDTH]}+ ({count} nodes)"


def headers(*, wide: bool = False, namespaces: bool = False) -> list[str]:
    """Titles of the columns."""
    start = ["NAMESPACE"] if namespaces else []
    more = ["PRIORITY", "DURATION", "JOBID"] if wide else []
    return [*start, "NAME", "OBJECT", "QUEUE", "STATE", "PODS", "WAIT", "RUN", *more, "INFO"]


def row(job: FluxJob, now: datetime, *, wide: bool = False, namespaces: bool = False) -> list[str]:
    """Cells of one job, in the order of `headers`."""
    waited, ran = times(job, now)
    start = [job.metadata.namespace] if namespaces else []
    more = []
    if wide:
        duration = age(job.spec.duration_seconds) if job.spec.duration_seconds else ""
        more = [str(job.spec.priority), duration, "" if job.status.jobid is None else str(job.status.jobid)]
    pods = str(job.spec.pods)
    return [*start, job.metadata.name, object_name(job), job.spec.queue, state_of(job), pods, waited, ran, *more, info(job, now, wide=wide)]


def table(
    jobs: Sequence[FluxJob], now: datetime, *, wide: bool = False, namespaces: bool = False, titles: bool = True, colour: bool = False
) -> str:
    """All of it as text.

    Parameters
    ----------
    jobs
        In any order.
    now
        Timezone-aware; moments are shown in its zone.
    wide, namespaces, titles
        As kubectl's ``-o wide``, ``-A`` and the opposite of ``--no-headers``.
    colour
        Colour the states.

    Returns
    -------
    str
        Lines.
    """
    rows = [row(job, now, wide=wide, namespaces=namespaces) for job in sorted(jobs, key=order)]
    return columns(headers(wide=wide, namespaces=namespaces) if titles else None, rows, CELL_STYLES if colour else None)
