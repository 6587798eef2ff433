"""A graph with its jobs and its clock: everything that one instance remembers.

All changes of bookings go through here, so that the derived structures (change points, verdict caches) cannot be forgotten. Whoever
must make several changes together takes a `journal`: it collects how to undo each step, and undoes them in reverse when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fluxqueue.fluxion.graph import Graph, Vertex
from fluxqueue.fluxion.jobs import Job, Placement
from fluxqueue.fluxion.jobspecs import GRAPH_DURATION_S
from fluxqueue.fluxion.messages import JobInfo, Mode
from fluxqueue.fluxion.nodetable import NodeTable
from fluxqueue.fluxion.policies import Policy
from fluxqueue.fluxion.schedule import ChangePoints
from fluxqueue.fluxion.timetable import Timetable
from fluxqueue.fluxion.weights import Weights

__all__ = ["State"]

_MAX_ENDED = 100_000


@dataclass(slots=True)
class State:
    """One instance of a graph.

    Attributes
    ----------
    now, horizon
        Where the clock stands and how far the graph plans.
    wall_clock
        None until a call has placed something in time; then whether such calls carry ``now``.
    jobs
        Live jobs by id; ``ended`` remembers the last hundred thousand that were cancelled.
    system, excess, closed
        System allocation of a node by name; what jobs should have on a node and do not; nodes that take nothing new meanwhile.
    awaited
        Jobs that were restored with a share on a node that is not there yet, by its name.
    releases
        Counter that moves with every change that can make room: remembered verdicts hold while it stands.
    reserved
        Those of the jobs that are reservations.
    topology
        Counter that moves with every change of the graph itself.
    """

    instance: str
    graph: Graph
    policy: Policy
    now: int = 0
    horizon: int = GRAPH_DURATION_S
    wall_clock: bool | None = None
    epoch: int = 0
    next_jobid: int = 1
    jobs: dict[int, Job] = field(default_factory=dict)
    ended: dict[int, JobInfo] = field(default_factory=dict)
    points: ChangePoints = field(default_factory=ChangePoints)
    releases: int = 0
    topology: int = 0
    reserved: dict[Job, None] = field(default_factory=dict)
    journal: list[Callable[[], None]] | None = None
    weights: Weights | None = None
    system: dict[str, Job] = field(default_factory=dict)
    excess: dict[Vertex, dict[Job, dict[str, int]]] = field(default_factory=dict)
    closed: set[Vertex] = field(default_factory=set)
    awaited: dict[str, set[Job]] = field(default_factory=dict)
    table: NodeTable = field(init=False)
    timetable: Timetable = field(init=False)

    def __post_init__(self) -> None:
        self.table = NodeTable(self.graph)
        self.timetable = Timetable(self.table, self.jobs)

    def graph_changed(self) -> None:
        """Take note that vertices came, went or changed: remembered verdicts no longer hold."""
        self.topology += 1
        self.releases += 1
        if self.weights is not None:
            self.weights.forget()

    def note_excess(self, node: Vertex, job: Job, missing: Mapping[str, int]) -> None:
        """Write down what a job should have on a node and does not; nothing missing takes the note away."""
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
        self.reclose(node)
        self.undo(lambda: self.note_excess(node, job, before or {}))

    def reclose(self, node: Vertex) -> None:
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
        """Move the clock; it never goes back."""
        if self.wall_clock is None:
            self.wall_clock = True
            self.now = now
            self.horizon = now + GRAPH_DURATION_S
        elif now > self.now:
            self.now = now
            # Time alone frees nothing but the past part of plans.
            self.releases += bool(self.reserved)

    def freeze(self) -> None:
        """Decide that this graph lives at 0 for ever."""
        self.wall_clock = False

    def end_of(self, start: int, duration_s: int) -> int:
        """End of a job; a duration of 0 means as far as the graph plans."""
        return min(start + duration_s, self.horizon) if duration_s else self.horizon

    def pick_jobid(self) -> int:
        """A job id nobody has used."""
        while self.next_jobid in self.jobs or self.next_jobid in self.ended:
            self.next_jobid += 1
        jobid = self.next_jobid
        self.next_jobid += 1
        return jobid

    def weigh(self, placement: Placement, *, booked: bool = True) -> None:
        """Remember that a match went through these edges, for policies that explore by it."""
        if self.weights is not None:
            self.weights.update(placement, self.now, booked=booked)

    def book(self, job: Job) -> None:
        """Let a job occupy what its placement says."""
        self.jobs[job.jobid] = job
        self.ended.pop(job.jobid, None)
        self._occupy(job)
        self.undo(lambda: self.free(job))

    def free(self, job: Job) -> None:
        """Take a job out."""
        self._vacate(job)
        del self.jobs[job.jobid]
        mode, job.mode = job.mode, Mode.CANCELED
        self.ended[job.jobid] = job.info(self.horizon)
        if len(self.ended) > _MAX_ENDED:
            del self.ended[next(iter(self.ended))]
        self.releases += 1

        def undo() -> None:
            job.mode = mode
            self.book(job)

        self.undo(undo)

    def change(self, job: Job, change: Callable[[], Callable[[], None]]) -> None:
        """Change times or placement of a live job.

        Parameters
        ----------
        change
            Makes the change and returns how to unmake it; called while the job is out of the graph.
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

    def _occupy(self, job: Job) -> None:
        job.book()
        self.points.add(job)
        self.table.booked(job, 1)
        self.timetable.note(job)
        if job.reserved:
            self.reserved[job] = None

    def _vacate(self, job: Job) -> None:
        self.points.remove(job)
        job.release()
        self.table.booked(job, -1)
        self.timetable.note(job)
        self.reserved.pop(job, None)

    def undo(self, step: Callable[[], None]) -> None:
        """Remember how to take back what was just done."""
        if self.journal is not None:
            self.journal.append(step)

    def atomically(self, work: Callable[[], bool]) -> bool:
        """Run changes; undo all of them if the work says False or raises."""
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
