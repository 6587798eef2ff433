"""Which nodes are set aside for people, and when: the FluxReservations with their nodes and the next of their
times.

The book is brought up to date at the beginning of a cycle, and only if a reservation or a node changed, or a
time began or ended. A choice of nodes is stored before the matcher learns it. The oldest reservation chooses
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
import structlog

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import AdvanceReservation
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.reservations import view_changed
from fluxqueue.queue.model.occurrences import Occurrence, merged, occurrences
from fluxqueue.queue.model.reservation_plans import BookedReservation, NodeView, ReservationPlan, choose_nodes
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PLANNED_AHEAD", "ReservationBook", "times_of"]

log = structlog.get_logger()

PLANNED_AHEAD = 16
"""Times of one reservation that are set aside ahead."""
_MOST = 1_000
"""Reservations that are set aside; the matcher accepts no more."""
_MOST_NODE_TIMES = 200_000
"""Times of all reservations on all their nodes.
The matcher enters each in its plan, 100,000 in about a second."""
_FOREVER = float("inf")


def times_of(plan: ReservationPlan, now: int) -> tuple[Occurrence, ...]:
    """Return the times of a reservation that are planned ahead."""
    return (
        merged(occurrences(plan.times, now, PLANNED_AHEAD))
        if plan.times is not None and not plan.problem
        else ()
    )


def _first_end(plan: ReservationPlan, now: int) -> int:
    """Return the end of the first time that is not over, as it was before times that touch became one;
    0 if there is none.
    """
    first = occurrences(plan.times, now, 1) if plan.times is not None and not plan.problem else ()
    return first[0].end if first else 0


def _within(room: int, booked: BookedReservation) -> BookedReservation:
    """Return a reservation with as many of its times as there is room for; a negative room is for none."""
    if not booked.times or (booked.nodes == () and room >= 0):
        return booked
    fitting = room // len(booked.nodes) if booked.nodes else 0
    if fitting < 1:
        refusal = (
            f"older reservations take up all that the queue sets aside ({_MOST:,} reservations, "
            f"{_MOST_NODE_TIMES:,} nodes and times)"
        )
        return BookedReservation(booked.plan, refusal=f"{refusal}: delete some, or reserve fewer nodes")
    return replace(booked, times=booked.times[:fitting])


class _GivenNodes:
    """The nodes of reservations with their times.
    Each of a thousand is compared with all before it, so their times are columns.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[str, ...]] = []
        self._times = np.zeros((3, _MOST * PLANNED_AHEAD), dtype=np.int64)
        self._used = 0

    def add(self, booked: BookedReservation) -> None:
        """Add a reservation that has its nodes."""
        for time in booked.times if booked.nodes else ():
            self._times[:, self._used] = time.start, time.end, len(self._nodes)
            self._used += 1
        self._nodes.append(booked.nodes)

    def nodes_at(self, times: Iterable[Occurrence]) -> set[str]:
        """Return all nodes that were given away at any of these times."""
        starts, ends, owners = self._times[:, : self._used]
        met = np.zeros(self._used, dtype=np.bool_)
        for time in times:
            met |= (starts < time.end) & (ends > time.start)
        return set(chain.from_iterable(self._nodes[owner] for owner in np.unique(owners[met]).tolist()))


class ReservationBook:
    """The advance reservations.

    Parameters
    ----------
    ledger
        What runs where, and where choices are stored.
    plans
        Returns the reservations by name: another mapping after every change.
    nodes
        Returns the nodes of the cluster.

    Attributes
    ----------
    booked
        By name. Those that are over, or not valid, have no times.
    """

    def __init__(
        self,
        ledger: Ledger,
        plans: Callable[[], Mapping[str, ReservationPlan]],
        nodes: Callable[[], Iterable[NodeView]],
    ) -> None:
        self.booked: Mapping[str, BookedReservation] = {}
        self._ledger = ledger
        self._plans = plans
        self._nodes = nodes
        self._chosen: dict[str, tuple[str, ...]] | None = None
        self._seen: Mapping[str, ReservationPlan] | None = None
        self._nodes_changed = True
        self._next_change: float = 0
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call a function whenever reservations, their nodes or their present times changed."""
        self._listeners.append(listener)

    def node_changed(self, change: Change[Node]) -> None:
        """Choose nodes again in the next cycle if the choice may change with this one."""
        self._nodes_changed |= view_changed(change)

    def wanted(self) -> tuple[AdvanceReservation, ...]:
        """Return what the matcher is to set aside."""
        return tuple(each.for_matcher() for each in self.booked.values() if each.times)

    def next_change(self) -> float:
        """Return when the next time begins or ends, in Unix seconds; infinite if there is none."""
        return self._next_change if self.booked else _FOREVER

    @property
    def ready(self) -> bool:
        """True once the book was brought up to date: before, it is not known what is set aside."""
        return self._seen is not None

    async def refresh(self, now: int) -> bool:
        """Bring the book up to date; return whether anything changed, a time that began or ended included."""
        plans = self._plans()
        if not plans and not self.booked and self._seen is not None:
            return False
        if plans is self._seen and not self._nodes_changed and now < self._next_change:
            return False
        if self._chosen is None:
            self._chosen = await self._ledger.reserved_nodes.reserved_nodes()
        self._nodes_changed, nodes_changed = False, self._nodes_changed
        try:
            booked = self._book(plans, now)
            await self._store(plans, booked)
        except BaseException:
            self._nodes_changed = nodes_changed
            raise
        passed = bool(self.booked) and now >= self._next_change
        changed = passed or booked != self.booked
        self._seen, self.booked = plans, booked
        limits = (
            edge
            for each in booked.values()
            for time in each.times[:1]
            for edge in (time.start, time.end, each.renewed_at)
        )
        self._next_change = min((edge for edge in limits if edge > now), default=_FOREVER)
        if changed:
            for listener in self._listeners:
                listener()
        return changed

    def _book(self, plans: Mapping[str, ReservationPlan], now: int) -> dict[str, BookedReservation]:
        """Choose the nodes of all reservations, the oldest first."""
        nodes = tuple(self._nodes())
        booked: dict[str, BookedReservation] = {}
        busy = self._busy(now) if any(plan.count is not None for plan in plans.values()) else {}
        room, given = _MOST_NODE_TIMES, _GivenNodes()
        for number, plan in enumerate(sorted(plans.values(), key=lambda each: (each.created_at, each.name))):
            known = self.booked.get(plan.name)
            same = (
                known is not None
                and known.plan is plan
                and not known.refusal
                and (not known.times or now < known.renewed_at)
            )
            times = known.times if same and known is not None else times_of(plan, now)
            renewed_at = known.renewed_at if same and known is not None else _first_end(plan, now)
            kept = (self._chosen or {}).get(plan.uid, ())
            taken = given.nodes_at(times) if plan.count is not None else set[str]()
            chosen = choose_nodes(plan, nodes, kept=kept, taken=taken, busy=busy) if times else ()
            booked[plan.name] = fitted = _within(
                room if number < _MOST else -1, BookedReservation(plan, chosen, times, renewed_at=renewed_at)
            )
            given.add(fitted)
            room -= len(fitted.nodes) * len(fitted.times)
        return booked

    def _busy(self, now: int) -> dict[str, float]:
        """How long the queue's work still runs on each node."""
        busy: dict[str, float] = {}
        for _, allocation in self._ledger.live():
            left = max(allocation.end.timestamp() - now, 0) if allocation.end is not None else _FOREVER
            for share in allocation.shares:
                busy[share.node] = max(busy.get(share.node, 0), left)
        return busy

    async def _store(
        self, plans: Mapping[str, ReservationPlan], booked: Mapping[str, BookedReservation]
    ) -> None:
        """Store the choices that are new, and forget those of reservations that are gone."""
        before = self._chosen or {}
        chosen = {
            each.plan.uid: each.nodes
            for each in booked.values()
            if each.plan.count is not None and each.times
        }
        new = {uid: nodes for uid, nodes in chosen.items() if before.get(uid) != nodes}
        uids = {plan.uid for plan in plans.values()}
        gone = [uid for uid in before if uid not in uids]
        if new or gone:
            await self._ledger.reserved_nodes.reserve_nodes(self._ledger.epoch, new, gone)
            self._chosen = {uid: nodes for uid, nodes in {**before, **new}.items() if uid in uids}
            log.info("reservation.nodes_chosen", reservations=len(new), forgotten=len(gone))
