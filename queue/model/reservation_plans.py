"""A FluxReservation as the queue reads it: its times, its nodes, who may use it, and what is wrong with it.

People write these objects one by one, and a webhook that is away checks none of them. So a reservation whose
times cannot be read is a plan with a problem: it sets nothing aside, nobody may use it, and its status says
why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from types import MappingProxyType

from fluxqueue.api.fluxreservations import AtStart, FluxReservation
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.reservedtimes import InvalidTimes, ReservedTimes, read_times
from fluxqueue.fluxion.messages import AdvanceReservation
from fluxqueue.queue.model.occurrences import Occurrence, occurrences

__all__ = ["BookedReservation", "NodeView", "ReservationPlan", "choose_nodes", "plan_of"]


@dataclass(frozen=True, slots=True)
class ReservationPlan:
    """A reservation.

    Attributes
    ----------
    name, uid, created_at
        Of its FluxReservation.
    times
        When it holds; None if that cannot be read.
    problem
        What is wrong with it, in a sentence; empty if nothing is.
    count, selector, names
        Its nodes: those named; else so many (None: all) of those with these labels.
    namespaces, queues
        Whose work may use it; None: any. Both must match.
    maintenance
        True if nothing is to run.
    at_start
        What is done to its nodes when a maintenance begins.
    """

    name: str
    uid: str
    created_at: str = ""
    times: ReservedTimes | None = None
    problem: str = ""
    count: int | None = None
    selector: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    namespaces: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    maintenance: bool = False
    at_start: AtStart = AtStart.LEAVE

    def refusal(self, namespace: str, queue: str) -> str:
        """Return why work of a namespace in a queue may not use it, in the rest of a sentence;
        empty if it may.
        """
        if self.problem:
            return f"is not valid: {self.problem}"
        if self.maintenance:
            return "is a maintenance, in which nothing runs: remove the annotation"
        if self.namespaces is not None and namespace not in self.namespaces:
            return (
                f"is not for namespace {namespace!r}: have it added to spec.namespaces of the "
                "FluxReservation, or remove the annotation"
            )
        if self.queues is not None and queue not in self.queues:
            return (
                f"is not for the queue {queue!r}: choose another queue, "
                "or have it added to spec.queues of the FluxReservation"
            )
        return ""


@dataclass(frozen=True, slots=True)
class BookedReservation:
    """A reservation with its nodes and the next of its times, as they are set aside.

    Attributes
    ----------
    plan
        The reservation.
    nodes
        Names, sorted.
    times
        Times that are not over, ascending and apart: as many as are planned ahead.
    refusal
        Why nothing is set aside for it although nothing is wrong with it, in a sentence; empty if that is not
        so.
    renewed_at
        When its times are listed anew, one more with them (Unix seconds): times that touch are one, so that
        may be long before its end.
    """

    plan: ReservationPlan
    nodes: tuple[str, ...] = ()
    times: tuple[Occurrence, ...] = ()
    refusal: str = ""
    renewed_at: int = 0

    @property
    def problem(self) -> str:
        """Why nothing is set aside for it, in a sentence; empty if nothing is wrong."""
        return self.plan.problem or self.refusal

    def active(self, now: int) -> bool:
        """True if one of its times has begun."""
        return any(each.start <= now < each.end for each in self.times)

    @property
    def missing(self) -> int:
        """How many nodes it lacks of those that it asks for."""
        return max((self.plan.count or 0) - len(self.nodes), 0)

    def for_matcher(self) -> AdvanceReservation:
        """Return it for the matcher."""
        return AdvanceReservation(
            self.plan.name,
            self.nodes,
            tuple((each.start, each.end) for each in self.times),
            self.plan.maintenance,
        )

    def meets(self, other: BookedReservation) -> Occurrence | None:
        """Return the first time that it has in common with another one on a common node."""
        if set(self.nodes).isdisjoint(other.nodes):
            return None
        common = (
            Occurrence(max(mine.start, its.start), min(mine.end, its.end))
            for mine in self.times
            for its in other.times
            if mine.start < its.end and its.start < mine.end
        )
        return min(common, default=None)


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the choice of nodes depends on.

    Attributes
    ----------
    name, labels
        Of the node.
    up
        True if it is ready, and cordoned by nobody but the queue.
    """

    name: str
    labels: Mapping[str, str]
    up: bool = True


def plan_of(reservation: FluxReservation) -> ReservationPlan:
    """Read a FluxReservation."""
    meta, spec = reservation.metadata, reservation.spec
    times, problem = None, ""
    try:
        read = read_times(spec)
        occurrences(read, int(read.start.timestamp()), 1)
        times = read
    except InvalidTimes as error:
        problem = str(error)
    except (ArithmeticError, LookupError, ValueError) as error:
        # of one object: it must not be met in a scheduling cycle
        problem = f"spec: its times cannot be computed ({error}): correct start, repeat or timeZone"
    nodes = spec.nodes
    if not problem and not nodes.names and not nodes.selector and not nodes.count:
        problem = "spec.nodes: write names, count or selector"
    if not problem and not spec.maintenance and spec.namespaces is None and spec.queues is None:
        problem = "spec: say who may use it (namespaces, queues), or that it is a maintenance"
    return ReservationPlan(
        name=meta.name,
        uid=meta.uid,
        created_at=_age(meta),
        times=times,
        problem=problem,
        count=nodes.count if not nodes.names else None,
        selector=nodes.selector,
        names=tuple(sorted(set(nodes.names or ()))),
        namespaces=frozenset(spec.namespaces) if spec.namespaces is not None else None,
        queues=frozenset(spec.queues) if spec.queues is not None else None,
        maintenance=spec.maintenance,
        at_start=spec.at_start,
    )


def _age(meta: ObjectMeta) -> str:
    return meta.creation_timestamp or ""


def choose_nodes(
    plan: ReservationPlan,
    nodes: Iterable[NodeView],
    *,
    kept: Sequence[str] = (),
    taken: Collection[str] = (),
    busy: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Choose the nodes of a reservation.

    Named nodes, and all nodes with some labels, are no choice. Of a number of nodes, those that were chosen
    before stay as long as they are there and up, as Slurm has it without ``STATIC_ALLOC``. Others are chosen
    by how soon their work ends, then by name.

    Parameters
    ----------
    plan
        The reservation.
    nodes
        All nodes of the cluster.
    kept
        The nodes that were chosen before.
    taken
        Nodes that other reservations have at these times.
    busy
        How long what runs on a node still runs; 0 if it is left out.

    Returns
    -------
    tuple of str
        Sorted names; fewer than ``count`` if there are not enough.
    """
    if plan.names:
        return plan.names
    wanted = [*(plan.selector or {}).items()]
    fitting = {
        each.name: each
        for each in nodes
        if not wanted or all(each.labels.get(key) == value for key, value in wanted)
    }
    if plan.count is None:
        return tuple(sorted(fitting))
    usable = {name for name, each in fitting.items() if each.up and name not in taken}
    chosen = [name for name in kept if name in usable][: plan.count]
    missing = plan.count - len(chosen)
    others = (
        nsmallest(missing, usable.difference(chosen), key=lambda name: (busy.get(name, 0), name))
        if missing
        else []
    )
    return tuple(sorted([*chosen, *others]))
