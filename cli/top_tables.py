"""The tables of `kubectl fluxqueue top`: pure functions of what is known of the queue,
without the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import LIVE, FluxJob, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.live_queue import QueueView
from fluxqueue.cli.node_listing import each_cells
from fluxqueue.cli.node_use import NodeUse

__all__ = ["MOST_ROWS", "Table", "job_table", "node_table", "queue_table", "summary"]

MOST_ROWS = 1_000
"""Of a table: nobody scrolls further, and a terminal shows fewer; the filter finds the others."""
_WAITING = State.PENDING


@dataclass(frozen=True)
class Table:
    """Titles, and rows with a key for each."""

    titles: tuple[str, ...]
    keys: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def summary(view: QueueView) -> str:
    """Return one line about the whole queue."""
    states = Counter(rows.state_of(job) for job in view.jobs)
    live = sum(states[state] for state in LIVE)
    ready = sum(node.status.ready and not node.spec.unschedulable for node in view.nodes)
    nodes = f", {ready} of {len(view.nodes)} nodes take work" if view.nodes else ""
    return (
        f"{live} running, {states[_WAITING]} waiting, {len(view.jobs) - live - states[_WAITING]} ended{nodes}"
    )


def job_table(jobs: Iterable[FluxJob], now: datetime, *, namespaces: bool, wanted: str = "") -> Table:
    """Return the table of FluxJobs in the order of the queue;
    ``wanted`` is a text in lower case that a row must have.
    """
    titles = rows.headers(namespaces=namespaces)
    chosen = sorted((job for job in jobs if _has(job, wanted)), key=rows.order)[:MOST_ROWS]
    cells = [rows.row(job, now, namespaces=namespaces) for job in chosen]
    return Table(tuple(titles), tuple(job.metadata.uid for job in chosen), tuple(map(tuple, cells)))


def _has(job: FluxJob, wanted: str) -> bool:
    texts = (
        job.metadata.namespace,
        job.metadata.name,
        rows.object_name(job),
        job.spec.queue,
        rows.state_of(job),
        job.status.reason,
    )
    return not wanted or any(wanted in text.lower() for text in texts)


def node_table(uses: Sequence[NodeUse], wanted: str = "") -> Table:
    """Return the table of nodes with the work on each."""
    titles, cells = each_cells(uses)
    found = [row for row in cells if not wanted or any(wanted in text.lower() for text in row)][:MOST_ROWS]
    return Table(tuple(titles), tuple(row[0] for row in found), tuple(map(tuple, found)))


def queue_table(queues: Sequence[FluxQueue], jobs: Iterable[FluxJob], wanted: str = "") -> Table:
    """Return the table of queues with what is in each; one without a FluxQueue is there if it has work."""
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for job in jobs:
        state = rows.state_of(job)
        (running if state in LIVE else waiting if state == _WAITING else Counter())[job.spec.queue] += 1
    known = {queue.metadata.name: queue for queue in queues}
    cells = []
    for name in sorted({*known, *running, *waiting}):
        spec = known[name].spec if name in known else None
        state, policy = (str(spec.state), str(spec.policy)) if spec is not None else ("", "")
        cells.append(
            (
                name,
                state,
                policy,
                str(spec.priority) if spec is not None else "",
                str(running[name]),
                str(waiting[name]),
            )
        )
    found = [row for row in cells if wanted in row[0].lower()]
    return Table(
        ("QUEUE", "STATE", "POLICY", "PRIORITY", "RUNNING", "WAITING"),
        tuple(row[0] for row in found),
        tuple(found),
    )
