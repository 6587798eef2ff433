"""A graph with its jobs and its clock: the whole state of one instance.

All changes of what jobs hold go through this class, so that the derived structures (change points, node
table, timetable, caches of verdicts) are always updated. Several changes are made together with
`GraphState.atomically`: a journal collects how to undo each step, and undoes them in reverse if one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fluxqueue.api.heap import give_back
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement, ReservedTime
from fluxqueue.fluxion.graph.vertices import Graph, Vertex
from fluxqueue.fluxion.match.change_points import ChangePoints
from fluxqueue.fluxion.match.jobspec import GRAPH_DURATION_S
from fluxqueue.fluxion.match.node_table import NodeTable
from fluxqueue.fluxion.match.policies import MatchPolicy
from fluxqueue.fluxion.match.request_cache import RequestCache
from fluxqueue.fluxion.match.timetable import Timetable
from fluxqueue.fluxion.match.weights import Weights
from fluxqueue.fluxion.messages import JobInfo, JobMode

__all__ = ["GraphState"]

_MAX_ENDED = 100_000
_MUCH = 2**20


@dataclass(slots=True)
class GraphState:
    """One instance of a graph.

    Attributes
    ----------
    now, horizon
        Current time, and how far the graph plans.
    wall_clock
        None until a call has placed something in time; then whether such calls carry ``now``.
    jobs
        Live jobs by id; ``ended`` has the last hundred thousand that were cancelled.
    system, excess, closed
        System allocation of a node by name; what jobs lack on a node; nodes that take nothing new while they
        have excess.
    awaited
        Jobs that were restored with a share on a node that the graph does not have yet, by its name.
    releases
        A counter that changes whenever resources may become free. Cached verdicts are valid while it is
        unchanged.
    reserved
        The jobs that are reservations.
    topology
        A counter that changes with every change of the graph itself, and of advance reservations.
    reserved_times
        The times of each advance reservation by its name, ascending.
    requests
        The requests that were read.
    """

    instance: str
    graph: Graph
    policy: MatchPolicy
    now: int = 0
    horizon: int = GRAPH_DURATION_S
    wall_clock: bool | None = None
    epoch: int = 0
    next_jobid: int = 1
    jobs: dict[int, GraphJob] = field(default_factory=dict)
    ended: dict[int, JobInfo] = field(default_factory=dict)
    points: ChangePoints = field(default_factory=ChangePoints)
    releases: int = 0
    topology: int = 0
    reserved: dict[GraphJob, None] = field(default_factory=dict)
    journal: list[Callable[[], None]] | None = None
    weights: Weights | None = None
    system: dict[str, GraphJob] = field(default_factory=dict)
    excess: dict[Vertex, dict[GraphJob, dict[str, int]]] = field(default_factory=dict)
    closed: set[Vertex] = field(default_factory=set)
    awaited: dict[str, set[GraphJob]] = field(default_factory=dict)
    reserved_times: dict[str, tuple[ReservedTime, ...]] = field(default_factory=dict)
    requests: RequestCache = field(default_factory=RequestCache)
    table: NodeTable = field(init=False)
    timetable: Timetable = field(init=False)

    def __post_init__(self) -> None:
        self.table = NodeTable(self.graph)
        self.timetable = Timetable(self.table, self.jobs)

    def graph_changed(self) -> None:
        """Invalidate cached verdicts after vertices were added, removed or changed."""
        self.topology += 1
        self.releases += 1
        if self.weights is not None:
            self.weights.forget()

    def note_excess(self, node: Vertex, job: GraphJob, missing: Mapping[str, int]) -> None:
        """Record what a job should hold on a node and does not; an empty ``missing`` removes the record."""
        notes = self.excess.get(node, {})
        before = notes.get(job)
        if before == missing or (before is None and not missing):
            return
        if missing:
            self.excess.setdefault(node, {})[job] = dict(missing)
        else:
            del notes[job]
            if not notes:
                del self.excess[node]
        self.update_closed(node)
        self.undo(lambda: self.note_excess(node, job, before or {}))

    def update_closed(self, node: Vertex) -> None:
        """Close a node that holds more than it has, or open it again."""
        closed = bool(self.excess.get(node)) or any(run.busy & ~run.full for run in node.runs.values())
        if closed != node.closed:
            node.closed = closed
            if closed:
                self.closed.add(node)
            else:
                self.closed.discard(node)
            self.releases += 1
            if node.row >= 0:
                self.table.refresh(node)

    def advance(self, now: int) -> None:
        """Move the clock forward; it never goes back."""
        if self.wall_clock is None:
            self.wall_clock = True
            self.now = now
            self.horizon = now + GRAPH_DURATION_S
        elif now > self.now:
            self.now = now
            # Time alone frees only the past part of reservations.
            self.releases += bool(self.reserved)

    def forget_idle(self) -> None:
        """Forget requests that nobody asks for any more, and the jobs that had them."""
        forgotten = self.requests.forget_idle(self.now)
        if forgotten:
            self.timetable.layout()  # it keeps what has changed until then, among it jobs that have ended
        if forgotten > _MUCH:
            give_back()

    def freeze(self) -> None:
        """Freeze the clock of this graph at 0."""
        self.wall_clock = False

    def end_of(self, start: int, duration_s: int) -> int:
        """Return the end of a job; a duration of 0 means as far as the graph plans."""
        return min(start + duration_s, self.horizon) if duration_s else self.horizon

    def pick_jobid(self) -> int:
        """Return an unused job id."""
        while self.next_jobid in self.jobs or self.next_jobid in self.ended:
            self.next_jobid += 1
        jobid = self.next_jobid
        self.next_jobid += 1
        return jobid

    def update_weights(self, placement: GraphPlacement, *, booked: bool = True) -> None:
        """Record that a match passed these edges, for policies that explore by weight."""
        if self.weights is not None:
            self.weights.update(placement, self.now, booked=booked)

    def book(self, job: GraphJob) -> None:
        """Add a job, which occupies its placement."""
        self.jobs[job.jobid] = job
        self.ended.pop(job.jobid, None)
        self._occupy(job)
        self.undo(lambda: self.free(job))

    def free(self, job: GraphJob) -> None:
        """End a job."""
        self._vacate(job)
        del self.jobs[job.jobid]
        mode, job.mode = job.mode, JobMode.CANCELED
        self.ended[job.jobid] = job.info(self.horizon)
        if len(self.ended) > _MAX_ENDED:
            del self.ended[next(iter(self.ended))]
        self.releases += 1

        def undo() -> None:
            job.mode = mode
            self.book(job)

        self.undo(undo)

    def withdraw(self, job: GraphJob) -> None:
        """Take a job out of the graph until `reinstate`, without ending it."""
        self._vacate(job)
        del self.jobs[job.jobid]
        self.releases += 1
        self.undo(lambda: self.reinstate(job))

    def reinstate(self, job: GraphJob) -> None:
        """Put a withdrawn job back into the graph, with the same placement."""
        self.jobs[job.jobid] = job
        self._occupy(job)
        self.undo(lambda: self.withdraw(job))

    def change(self, job: GraphJob, change: Callable[[], Callable[[], None]]) -> None:
        """Change times or placement of a live job.

        Parameters
        ----------
        change
            Makes the change and returns how to undo it; called while the job is out of the graph.
        """
        self._vacate(job)
        unmake = change()
        self._occupy(job)
        self.releases += 1

        def undo() -> None:
            self._vacate(job)
            unmake()
            self._occupy(job)

        self.undo(undo)

    def _occupy(self, job: GraphJob) -> None:
        job.book()
        self.points.add(job)
        self.table.booked(job, 1)
        self.timetable.note(job)
        if job.reserved:
            self.reserved[job] = None

    def _vacate(self, job: GraphJob) -> None:
        self.points.remove(job)
        job.release()
        self.table.booked(job, -1)
        self.timetable.note(job)
        self.reserved.pop(job, None)

    def undo(self, step: Callable[[], None]) -> None:
        """Add to the journal how to undo what was just done."""
        if self.journal is not None:
            self.journal.append(step)

    def atomically(self, work: Callable[[], bool]) -> bool:
        """Run changes; undo all of them if ``work`` returns False or raises."""
        outer, self.journal = self.journal, []
        kept = False
        try:
            kept = work()
        finally:
            steps, self.journal = self.journal, None
            if not kept:
                for step in reversed(steps):
                    step()
                self.releases += 1
            self.journal = outer
            if kept and outer is not None:
                outer.extend(steps)
        return kept
