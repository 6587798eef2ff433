"""The table of FluxJobs: one row per FluxJob.

The last column depends on the state, as in ``flux jobs``. For a pending workload it is the reason and the expected start, for a running one
its nodes, for an ended one its outcome. The order of rows is: running, pending in the queue's order, ended with the newest first.

All functions are pure functions of FluxJobs and the time.
"""

from __future__ import annotations

from datetime import datetime

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.cli.fitting import Narrowing
from fluxqueue.cli.tables import age, instant

__all__ = ["CELL_STYLES", "NARROWING", "headers", "info", "object_name", "order", "row", "state_of", "times"]

CELL_STYLES = {
    "Pending": "waits",
    "Allocated": "busy",
    "Running": "good",
    "Draining": "busy",
    "Completed": "dim",
    "Failed": "bad",
    "Cancelled": "dim",
}
NARROWING = Narrowing(
    (
        ("INFO", 32),
        ("NAME", 0),
        ("OBJECT", 24),
        ("INFO", 16),
        ("QUEUE", 10),
        ("OBJECT", 12),
        ("INFO", 8),
        ("PODS", 0),
        ("QUEUE", 0),
        ("WAIT", 0),
    )
)
"""What becomes narrower where a line is too long: the object says as much as the name of its FluxJob."""
_RANK = {State.RUNNING: 0, State.DRAINING: 0, State.ALLOCATED: 1, State.PENDING: 2}
_NODES_WIDTH = 40
_FAR = 1 << 62


def state_of(job: FluxJob) -> str:
    """Return the state of a FluxJob; one without a status is pending."""
    return job.status.state or State.PENDING


def object_name(job: FluxJob) -> str:
    """Return the user's object in kubectl's form: ``job/lammps``."""
    ref = job.spec.object_ref
    return f"{ref.kind.lower()}/{ref.name}" if ref.kind else ""


def order(job: FluxJob) -> tuple[int, float, str, str]:
    """Return the sort key: running, then pending by position and age, then ended with the newest first."""
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
    """Return how long a workload waited and how long it ran, up to now if it still does."""
    status = job.status
    submitted = instant(status.submitted_at or job.metadata.creation_timestamp)
    started, finished = instant(status.started_at), instant(status.finished_at)
    waited = age(((started or finished or now) - submitted).total_seconds()) if submitted else ""
    ran = age(((finished or now) - started).total_seconds()) if started else ""
    return waited, ran


def info(job: FluxJob, now: datetime, *, wide: bool = False) -> str:
    """Return the text of the last column.

    Parameters
    ----------
    job
        A FluxJob.
    now
        The present time.
    wide
        Add the message of the reason, and all nodes.
    """
    status = job.status
    state = state_of(job)
    if state == State.PENDING:
        return _why_it_waits(job, now, wide=wide)
    if state in (State.COMPLETED, State.FAILED, State.CANCELLED):
        ended = status.outcome or state
        return f"{ended}: {status.message}" if status.message and (wide or state == State.FAILED) else ended
    nodes = format_nodes(status.nodes) if wide else _short_nodes(status.nodes)
    what = "being cancelled" if job.spec.cancel else status.reason
    return f"{nodes} ({what})" if what and nodes else nodes or what


def _why_it_waits(job: FluxJob, now: datetime, *, wide: bool) -> str:
    status = job.status
    if job.spec.cancel:
        return "being cancelled"
    reason = status.reason or ("Held" if job.spec.hold else "")
    parts = [f"{reason}: {status.message}" if wide and status.message else reason]
    if status.position is not None and status.reason != Reason.UNSATISFIABLE:
        parts.append(f"position {status.position}")
    expected = instant(status.reserved_at or status.eta)
    if expected is not None:
        word = "reserved" if status.reserved_at else "eta"
        left = (expected - now).total_seconds()
        parts.append(f"{word} in {age(left)}" if left >= 1 else "due now")
    return ", ".join(part for part in parts if part)


def _short_nodes(nodes: str) -> str:
    text = format_nodes(nodes)
    if len(text) <= _NODES_WIDTH:
        return text
    try:
        count = len(set(hostlists.decode(nodes)))
    except hostlists.InvalidHostlist:
        return f"{text[:_NODES_WIDTH]}+"
    return f"{text[:_NODES_WIDTH]}+ ({count} nodes)"


def headers(*, wide: bool = False, namespaces: bool = False) -> list[str]:
    """Return the titles of the columns."""
    start = ["NAMESPACE"] if namespaces else []
    more = ["PRIORITY", "DURATION", "JOBID"] if wide else []
    return [*start, "NAME", "OBJECT", "QUEUE", "STATE", "PODS", "WAIT", "RUN", *more, "INFO"]


def row(job: FluxJob, now: datetime, *, wide: bool = False, namespaces: bool = False) -> list[str]:
    """Return the cells of one FluxJob, in the order of `headers`."""
    waited, ran = times(job, now)
    start = [job.metadata.namespace] if namespaces else []
    more = []
    if wide:
        duration = age(job.spec.duration_seconds) if job.spec.duration_seconds else ""
        more = [str(job.spec.priority), duration, "" if job.status.jobid is None else str(job.status.jobid)]
    pods = str(job.spec.pods)
    return [*start, job.metadata.name, object_name(job), job.spec.queue, state_of(job), pods, waited, ran, *more, info(job, now, wide=wide)]
