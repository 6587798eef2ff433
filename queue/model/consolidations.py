"""Consolidation: what moved work is told, what is won and lost by moving it, and what is first in line until
it has restarted (docs/consolidation.md).

Work that is moved is preempted work, so that one mechanism stops and requeues it. Beside that it is stored
for which workload it was moved (`RequeueState.moved`), and with that workload what was predicted
(`RequeueState.room`). So any leader knows what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from fluxqueue.api.fluxjobs import ROOM_MADE, Reason, State
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import (
    MOVED_FIRST,
    ROOM_FIRST,
    UNREAD,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import MadeRoom, Moved

__all__ = [
    "UnderWay",
    "is_being_moved",
    "move",
    "node_time",
    "prediction",
    "room_message",
    "settled",
    "under_way",
]

_RESTARTS_S: Final = timedelta(seconds=120)
"""From the end of its grace until moved work that has not restarted keeps no other work waiting."""


@dataclass(slots=True)
class UnderWay:
    """A consolidation that is not over.

    Attributes
    ----------
    added
        What is added to the priorities of the work that gets room, and of what was moved for it.
    holds_until
        Until when nothing else starts at most; None: other work starts as ever.
    """

    added: dict[WorkloadId, int] = field(default_factory=dict)
    holds_until: datetime | None = None


def is_being_moved(workload: Workload) -> bool:
    """True for work that was last told to stop because it is moved."""
    moved = workload.requeue_state.moved
    return moved is not None and moved.first == workload.requeue_state.preempted_for


def under_way(moved: Iterable[Workload], now: datetime) -> UnderWay:
    """Return what is not over, of all work that was ever moved."""
    found = UnderWay()
    for each in moved:
        state, restarts = each.requeue_state, each.state is State.PENDING
        mark = state.moved
        if mark is None or not is_being_moved(each) or not (each.evicting or restarts):
            continue
        stop_at = state.stop_at or mark.at
        if now >= stop_at + _RESTARTS_S or (restarts and each.blocked and each.generation != UNREAD):
            continue
        found.added[WorkloadId(mark.first)] = ROOM_FIRST
        if restarts:
            found.added[each.id] = MOVED_FIRST
        if stop_at <= now:
            found.holds_until = max(stop_at + _RESTARTS_S, found.holds_until or now)
    return found


def move(eviction: Eviction, victim: Workload, first: Workload, moved: Moved, room: MadeRoom) -> Eviction:
    """Return the eviction of a victim as that of work that is moved."""
    stop_at = eviction.requeue_state.stop_at if eviction.requeue_state is not None else None
    until = f", with a grace until {time_text(stop_at)}" if stop_at is not None and stop_at > moved.at else ""
    message = (
        f"{victim.ref} is moved so that {first.ref_within(victim.namespace)} starts sooner on "
        f"{_nodes(room)} ({prediction(room)}){until}: it fits elsewhere, is requeued and restarts first "
        "in line"
    )
    state = structs.replace(eviction.requeue_state or victim.requeue_state, moved=moved)
    return replace(eviction, reason=Reason.PREEMPTED, message=message, requeue_state=state)


def settled(
    room: MadeRoom,
    start: datetime,
    moved: Iterable[tuple[Moved, datetime, datetime | None]],
) -> MadeRoom:
    """Return what was won and lost in fact; by pods that were given back, as predicted.

    Parameters
    ----------
    room
        What was predicted.
    start
        When the work started.
    moved
        What was moved for it, when each has restarted, and its last checkpoint before that.
    """
    lost_s = sum(
        (restarted - max(each.since, min(saved or each.since, restarted))).total_seconds() * each.nodes
        for each, restarted, saved in moved
    )
    won_s = (room.planned - start).total_seconds() * room.nodes
    return structs.replace(
        room, real_won_node_s=round(won_s), real_lost_node_s=round(lost_s) + room.given_node_s
    )


def room_message(workload: Workload) -> str:
    """Return what work that has started is told of what was moved for it, what was predicted of that, and
    what it came to; empty if nothing was.
    """
    room = workload.requeue_state.room
    if room is None or workload.state in (State.PENDING, State.ALLOCATED):
        return ""
    works = "1 workload" if room.works == 1 else f"{room.works} workloads"
    real = ""
    if room.real_won_node_s is not None and room.real_lost_node_s is not None:
        real = f"; in fact {node_time(room.real_won_node_s)} won, {node_time(room.real_lost_node_s)} lost"
    return (
        f"{ROOM_MADE}{works} moved or gave pods back at {time_text(room.at)}, so that it starts before "
        f"{time_text(room.planned)}: {prediction(room)}{real}"
    )


def node_time(node_s: float) -> str:
    """Return a time of nodes, in whole minutes once there are some."""
    minutes = round(node_s / 60)
    return f"{minutes:,} node-minutes" if abs(minutes) > 1 else f"{round(node_s)} node-seconds"


def _nodes(room: MadeRoom) -> str:
    return "1 node" if room.nodes == 1 else f"{room.nodes} nodes"


def prediction(room: MadeRoom) -> str:
    """Return what is won and lost by the plan."""
    return f"{node_time(room.won_node_s)} won, {node_time(room.lost_node_s)} lost by the plan"
