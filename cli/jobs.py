"""The table of FluxJobs: one row per FluxJob.

``POS`` is the place of a pending workload in the line of its queue. ``START`` is when it is expected to
start; for a running one, how much of its duration is left. The last column depends on the state, as in
``flux jobs``: the reason, the nodes, or the outcome. The order of rows is: running, pending in the queue's
order, ended with the newest first.

All functions are pure functions of FluxJobs and the time.
"""

from __future__ import annotations

from datetime import datetime

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import ENDED, FluxJob, Reason, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.cli.fitting import Narrowing
from fluxqueue.cli.moldable_text import duration_with_started_pods
from fluxqueue.cli.node_text import least_pods
from fluxqueue.cli.tables import age, in_zone, instant

__all__ = [
    "CELL_STYLES",
    "NARROWING",
    "headers",
    "info",
    "object_name",
    "order",
    "place",
    "row",
    "same_kind",
    "start",
    "state_of",
    "times",
]

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
        ("OBJECT", 24),
        ("INFO", 16),
        ("QUEUE", 10),
        ("WAIT", 0),
        ("OBJECT", 12),
        ("PODS", 0),
        ("RUN", 0),
        ("INFO", 8),
        ("QUEUE", 0),
        ("START", 0),
        ("POS", 0),
    )
)
"""What becomes narrower where a line is too long;
which place in the line, and when it starts, stay longest."""
_RANK = {State.RUNNING: 0, State.DRAINING: 0, State.ALLOCATED: 1, State.PENDING: 2}
_NODES_WIDTH = 40
_FAR = 1 << 62


def state_of(job: FluxJob) -> str:
    """Return the state of a FluxJob; one without a status is pending."""
    return job.status.state or State.PENDING


def object_name(job: FluxJob) -> str:
    """Return the user's object in kubectl's form: ``job/lammps``."""
    return job.spec.object_ref.title


def same_kind(kind: str, written: str) -> bool:
    """True if a kind is written so: in any case, as a plural,
    or in parts (``pod-group``, as in annotations).
    """
    return written.lower().replace("-", "").removesuffix("s") == kind.lower().removesuffix("s")


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
    return (
        rank,
        since.timestamp() if since and rank != 2 else float(_FAR),
        status.submitted_at or "",
        job.metadata.name,
    )


def times(job: FluxJob, now: datetime) -> tuple[str, str]:
    """Return how long a workload waited and how long it ran, up to now if it still does."""
    status = job.status
    submitted = instant(status.submitted_at or job.metadata.creation_timestamp)
    started, finished = instant(status.started_at), instant(status.finished_at)
    waited = age(((started or finished or now) - submitted).total_seconds()) if submitted else ""
    ran = age(((finished or now) - started).total_seconds()) if started else ""
    return waited, ran


def place(job: FluxJob) -> str:
    """Return the place of a pending workload in the line of its queue;
    what is held or can never start has none.
    """
    status = job.status
    if (
        state_of(job) != State.PENDING
        or status.position is None
        or status.reason == Reason.UNSATISFIABLE
        or job.spec.hold
    ):
        return ""
    return str(status.position)


def start(job: FluxJob, now: datetime) -> str:
    """Return when a pending workload is expected to start, or how much of a running one's duration is
    left.
    """
    state = state_of(job)
    if state == State.PENDING:
        expected = instant(job.status.reserved_at or job.status.eta)
        if expected is None:
            return ""
        seconds = (expected - now).total_seconds()
        return f"in {age(seconds)}" if seconds >= 1 else "due now"
    begun = instant(job.status.started_at)
    if state != State.RUNNING or begun is None or not job.spec.duration_seconds:
        return ""
    left = duration_with_started_pods(job, least_pods(job)) - (now - begun).total_seconds()
    return f"{age(left)} left" if left >= 1 else f"{age(-left)} over"


def info(job: FluxJob, now: datetime, *, wide: bool = False, alone: bool = True) -> str:
    """Return what matters now of a workload.

    Parameters
    ----------
    job
        A FluxJob.
    now
        The present time.
    wide
        Add the message of the reason, and all nodes.
    alone
        Place and start do not stand next to it, so they are in it.
    """
    status = job.status
    state = state_of(job)
    if state == State.PENDING:
        return _why_it_waits(job, now, wide=wide, alone=alone)
    if state in ENDED:
        ended = status.outcome or state
        return (
            f"{ended}: {in_zone(status.message, now)}"
            if status.message and (wide or state == State.FAILED)
            else ended
        )
    nodes = format_nodes(status.nodes) if wide else _short_nodes(status.nodes)
    what = "being cancelled" if job.spec.cancel else status.reason
    return f"{nodes} ({what})" if what and nodes else nodes or what


def _why_it_waits(job: FluxJob, now: datetime, *, wide: bool, alone: bool) -> str:
    status = job.status
    if job.spec.cancel:
        return "being cancelled"
    reason = status.reason or ("Held" if job.spec.hold else "")
    parts = [f"{reason}: {in_zone(status.message, now)}" if wide and status.message else reason]
    if not alone:
        parts += ["reserved"] if status.reserved_at else []
    else:
        parts += [f"position {place(job)}"] if place(job) else []
        word = "reserved" if status.reserved_at else "eta"
        when = start(job, now)
        parts.append(f"{word} {when}" if when.startswith("in ") else when)
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
    first = ["NAMESPACE"] if namespaces else []
    more = ["USER", "PRIORITY", "DURATION", "JOBID", "NAME"] if wide else []
    return [*first, "OBJECT", "QUEUE", "STATE", "PODS", "WAIT", "RUN", "POS", "START", *more, "INFO"]


def row(job: FluxJob, now: datetime, *, wide: bool = False, namespaces: bool = False) -> list[str]:
    """Return the cells of one FluxJob, in the order of `headers`."""
    waited, ran = times(job, now)
    first = [job.metadata.namespace] if namespaces else []
    more = []
    if wide:
        duration = age(job.spec.duration_seconds) if job.spec.duration_seconds else ""
        jobid = "" if job.status.jobid is None else str(job.status.jobid)
        more = [job.status.submitted_by, str(job.spec.priority), duration, jobid, job.metadata.name]
    cells = [
        object_name(job) or job.metadata.name,
        job.spec.queue,
        state_of(job),
        str(job.spec.pods),
        waited,
        ran,
        place(job),
        start(job, now),
    ]
    return [*first, *cells, *more, info(job, now, wide=wide, alone=False)]
