"""What the first page says: how full the cluster is and was, who waits for what, what starts next, who runs
most, and what failed.

All of it is made from what is watched, so it costs neither the API server nor the database a request. Work
that the person does not see is in what is used of the nodes, and in nothing else.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from fluxqueue.api.fluxjobs import LIVE, State
from fluxqueue.api.graphnames import CPU
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.node_map import NodeMap
from fluxqueue.dashboard.pages.shared import planned_start

__all__ = ["BINS", "BIN_S", "Curve", "Overview", "Share", "overview_of", "use_curve"]

BIN_S: Final = 300
BINS: Final = 288
"""The last day, in parts of five minutes."""
_DAY_S: Final = 86_400
_SHOWN: Final = 6
_HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Share:
    """A line of a list: a name, how many jobs, an amount of cores if that is counted,
    and its part of the largest line in percent.
    """

    name: str
    jobs: int
    cores: float = 0.0
    percent: float = 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """The use of resources over the last day.

    Attributes
    ----------
    times
        Where the parts begin, in seconds of the epoch; the last one has not ended.
    values
        Resource type of the graph -> mean of each part, in the graph's units.
    """

    times: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]

    def hours(self, kind: str) -> float:
        """How much of a resource was used in all, in its units times hours."""
        return sum(self.values.get(kind, ())) * BIN_S / _HOUR_S


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows of work that a person sees.

    Attributes
    ----------
    states
        How many jobs have each state.
    queues, accounts, reasons
        What waits, by each of them, the largest first.
    by_namespace
        True if no work has an account, so that ``accounts`` and ``runners`` are by namespace.
    starts
        What starts next.
    unplanned
        How many waiting jobs have no planned start.
    runners
        Who uses most cores now.
    failures
        What failed last, of ``failed`` jobs in the last day that failed, of ``ended`` that ended.
    free, whole
        Nodes that are ready and have no work, and all nodes.
    """

    states: Mapping[str, int]
    queues: tuple[Share, ...]
    accounts: tuple[Share, ...]
    reasons: tuple[Share, ...]
    by_namespace: bool
    starts: tuple[tuple[datetime, JobRow], ...]
    unplanned: int
    runners: tuple[Share, ...]
    failures: tuple[JobRow, ...]
    failed: int
    ended: int
    free: int = 0
    whole: int = 0

    @property
    def live(self) -> int:
        """How many jobs have nodes."""
        return sum(self.states.get(state, 0) for state in LIVE)

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return self.states.get(State.PENDING, 0)


def overview_of(
    rows: Iterable[JobRow], nodes: NodeMap | None, now: datetime, gone: Iterable[JobRow] = ()
) -> Overview:
    """Return the page's content.

    Parameters
    ----------
    rows
        The work that the person sees.
    nodes
        All nodes; None if he may not list them.
    now
        The present time.
    gone
        Work that he saw and whose object was deleted: it counts among what ended.
    """
    states: Counter[str] = Counter()
    waiting: list[JobRow] = []
    live: list[JobRow] = []
    ended: list[tuple[float, JobRow]] = []
    since = now.timestamp() - _DAY_S
    for row in chain(rows, gone):
        if row.gone is None:
            states[row.state] += 1
        if row.state == State.PENDING:
            waiting.append(row)
        elif row.state in LIVE and row.gone is None:
            live.append(row)
        elif (at := instant(row.job.status.finished_at)) is not None and at.timestamp() >= since:
            ended.append((at.timestamp(), row))
    by_namespace = not any(row.job.status.account for row in (*waiting, *live))
    failed = [each for each in ended if each[1].state == State.FAILED]
    starts = [(at, row) for row in waiting if (at := planned_start(row.job)) is not None]
    queues, reasons = Counter(row.queue for row in waiting), Counter(row.reason for row in waiting)
    owners = Counter(_owner(row, by_namespace=by_namespace) for row in waiting)
    cores: Counter[str] = Counter()
    for row in live:
        cores[_owner(row, by_namespace=by_namespace)] += row.requested.get(CPU, 0)
    cells = [cell for group in nodes.groups for cell in group.cells] if nodes is not None else []
    return Overview(
        states,
        _most(queues, queues),
        _most(owners, owners),
        _most(reasons, reasons),
        by_namespace,
        tuple(
            heapq.nsmallest(
                _SHOWN, starts, key=lambda each: (each[0], each[1].job.status.position or 0, each[1].uid)
            )
        ),
        len(waiting) - len(starts),
        _most(cores, Counter(_owner(row, by_namespace=by_namespace) for row in live)),
        tuple(row for _, row in heapq.nsmallest(_SHOWN, failed, key=lambda each: (-each[0], each[1].uid))),
        len(failed),
        len(ended),
        sum(cell.free for cell in cells),
        len(cells),
    )


def _owner(row: JobRow, *, by_namespace: bool) -> str:
    return row.namespace if by_namespace else row.job.status.account


def _most(sizes: Counter[str], jobs: Counter[str]) -> tuple[Share, ...]:
    """Return the largest lines; those of equal size by name. A size is a number of jobs, or millicores."""
    names = heapq.nsmallest(_SHOWN, sizes, key=lambda name: (-sizes[name], name))
    most = max(sizes.values(), default=0) or 1
    return tuple(
        Share(name, jobs[name], sizes[name] / 1_000, round(100 * sizes[name] / most, 1)) for name in names
    )


def use_curve(rows: Iterable[JobRow], visible: Visible, kinds: Sequence[str], now: datetime) -> Curve:
    """Return how much of each resource work had over the last day.

    A FluxJob goes with its Job or pod: work whose object was deleted before the dashboard started is missing.
    So is what a job had before it was requeued.

    Parameters
    ----------
    rows
        All work, with what is remembered of that whose objects were deleted.
    visible
        What the person sees. Who may list nodes is shown what all work used, as on the map of the nodes; else
        it is his work alone.
    kinds
        Resource types of the graph.
    now
        The present time.
    """
    moment = now.timestamp()
    first = -int(-moment // BIN_S) * BIN_S - BINS * BIN_S
    whole = {kind: [0.0] * (BINS + 1) for kind in kinds}
    parts = {kind: [0.0] * BINS for kind in kinds}
    for row in rows:
        begin, end = row.held
        begin, end = max(begin, first), min(end, moment)
        if begin >= end or not (visible.nodes or visible.shows(row.namespace)):
            continue
        left, right = int((begin - first) // BIN_S), min(int((end - first) // BIN_S), BINS - 1)
        edges = _edges(begin - first, end - first, left, right)
        for kind in kinds:
            if not (amount := row.requested.get(kind, 0)):
                continue
            for at, seconds in edges:
                parts[kind][at] += amount * seconds
            if right - left > 1:
                whole[kind][left + 1] += amount
                whole[kind][right] -= amount
    last_s = moment - (first + (BINS - 1) * BIN_S)
    return Curve(
        tuple(first + number * BIN_S for number in range(BINS)),
        {kind: _means(parts[kind], whole[kind], last_s) for kind in kinds},
    )


def _edges(begin: float, end: float, left: int, right: int) -> tuple[tuple[int, float], ...]:
    """Return how many seconds of its first and of its last part a job had its nodes."""
    if left == right:
        return ((left, end - begin),)
    return (left, (left + 1) * BIN_S - begin), (right, end - right * BIN_S)


def _means(parts: Sequence[float], whole: Sequence[float], last_s: float) -> tuple[float, ...]:
    """Return the mean of each part: of what began or ended in it, and of what was there through all of it."""
    means = []
    through = 0.0
    for number, amount in enumerate(parts):
        through += whole[number]
        means.append(through + amount / (last_s if number == BINS - 1 else BIN_S))
    return tuple(means)
