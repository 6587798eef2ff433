"""Advance reservations: nodes that are set aside, at certain times, for the jobs that name the reservation.

Each time of a reservation is a job of the graph that holds its nodes as a whole and none of their leaves. So
every search, now and later, keeps off these nodes at these times, and what already runs there is in nobody's
way. A job that names the reservation is searched for with that one time left out of the graph
(`fluxqueue.fluxion.graph.jobs.ReservedTime.opened`), on its nodes only and within it.

All reservations are set together, so the caller needs no memory of what it set before. A reservation that did
not change keeps its jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement, ReservedTime
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import AdvanceReservation, JobMode, NodeShare

__all__ = ["AdvanceReservations"]

_MAX_RESERVATIONS = 1_000
_MAX_TIMES = 256
_FIRST_ID = 1 << 40
"""Job ids of reserved times are below all others, so that no system allocation has the same."""


class AdvanceReservations:
    """The advance reservations of one state."""

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._serial = count(_FIRST_ID)
        self._wanted: dict[str, AdvanceReservation] = {}

    def set(self, wanted: Sequence[AdvanceReservation]) -> tuple[int, ...]:
        """Set all advance reservations; return the ids of the reservations of jobs that were dropped for
        them.

        Raises
        ------
        Refused
            A name occurs twice, or times are not ascending and apart; or there are too many.
        """
        for reservation in wanted:
            _check(reservation)
        by_name = {reservation.name: reservation for reservation in wanted}
        if len(by_name) < len(wanted):
            raise Refused("advance reservations: a name occurs twice")
        if len(by_name) > _MAX_RESERVATIONS:
            raise Refused(f"advance reservations: {len(by_name)} are more than {_MAX_RESERVATIONS}")
        changed = [
            name for name in {**self._wanted, **by_name} if self._wanted.get(name) != by_name.get(name)
        ]
        before, self._wanted = self._wanted, by_name
        self._state.undo(lambda: setattr(self, "_wanted", before))
        return self._replace(changed)

    def settle(self) -> tuple[int, ...]:
        """Set aside nodes that were added after their reservation;
        return the ids of the reservations of jobs that were dropped.
        """
        return self._replace(
            [name for name, wanted in self._wanted.items() if self._lacks_nodes(name, wanted)]
        )

    def _lacks_nodes(self, name: str, wanted: AdvanceReservation) -> bool:
        times = self._state.reserved_times.get(name, ())
        return bool(times) and self._present(wanted) != times[0].nodes

    def _present(self, wanted: AdvanceReservation) -> frozenset[Vertex]:
        graph = self._state.graph
        known = (graph.by_name.get(name) or graph.removed.get(name) for name in wanted.nodes)
        return frozenset(node for node in known if node is not None)

    def _replace(self, names: Sequence[str]) -> tuple[int, ...]:
        """Give these reservations their present times and nodes."""
        state = self._state
        if not names:
            return ()
        for name in names:
            for time in state.reserved_times.get(name, ()):
                state.free(time.job)
                state.ended.pop(time.job.jobid, None)
        before = state.reserved_times
        after = {name: times for name, times in before.items() if name not in names}
        for name in names:
            if (wanted := self._wanted.get(name)) is not None:
                after[name] = self._book(wanted)
        self._remember(after)
        state.undo(lambda: self._remember(before))
        displaced = {job.jobid: job for name in names for job in self._unfit(name)}
        for job in displaced.values():
            state.free(job)
        return tuple(sorted(displaced))

    def _remember(self, advance: dict[str, tuple[ReservedTime, ...]]) -> None:
        self._state.reserved_times = advance
        self._state.topology += 1
        self._state.releases += 1

    def _book(self, wanted: AdvanceReservation) -> tuple[ReservedTime, ...]:
        """Book the times of a reservation.
        It has one without nodes too, so that jobs that name it learn that.
        """
        nodes = self._present(wanted)
        times: list[ReservedTime] = []
        for start, end in wanted.times:
            placement = GraphPlacement()
            for node in sorted(nodes, key=lambda node: node.id):
                placement.take_vertex(node, exclusive=True)
            until = min(end, self._state.horizon) if end else self._state.horizon
            job = GraphJob(-next(self._serial), start, until, placement, reserved=True, mode=JobMode.ADVANCE)
            job.shares = tuple(NodeShare(name, exclusive=True) for name in wanted.nodes)
            self._state.book(job)
            times.append(ReservedTime(wanted.name, wanted.maintenance, job, nodes))
        return tuple(times)

    def _unfit(self, name: str) -> Iterator[GraphJob]:
        """Yield the reservations of jobs that an advance reservation leaves no place for, as it is now."""
        state = self._state
        times = state.reserved_times.get(name, ())
        for job in [job for job in state.reserved if job.mode is JobMode.RESERVED]:
            nodes = {vertex for vertex in job.placement.vertices if vertex.type == NODE}
            if job.jobspec is not None and job.jobspec.reservation == name:
                if not any(time.covers(job.start, job.end) and nodes <= time.nodes for time in times):
                    yield job
            elif any(
                time.job.overlaps(job.start, job.end, state.now) and not nodes.isdisjoint(time.nodes)
                for time in times
            ):
                yield job


def _check(reservation: AdvanceReservation) -> None:
    where = f"advance reservation {reservation.name!r:.200}"
    if not reservation.name:
        raise Refused("advance reservations: each needs a name")
    if len(reservation.times) > _MAX_TIMES:
        raise Refused(f"{where}: {len(reservation.times)} times are more than {_MAX_TIMES}")
    if any(end and end <= start for start, end in reservation.times):
        raise Refused(f"{where}: a time ends before it starts")
    if any(not end or end > start for (_, end), (start, _) in pairwise(reservation.times)):
        raise Refused(f"{where}: its times must be ascending and apart")
