"""What moved work is told, what is first until it has restarted, and what moving it came to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.consolidations import (
    is_being_moved,
    node_time,
    prediction,
    room_message,
    settled,
    under_way,
)
from fluxqueue.queue.model.preemption_notices import preempt
from fluxqueue.queue.model.records import (
    MOVED_FIRST,
    ROOM_FIRST,
    UNREAD,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import MadeRoom, Moved, RequeueState

FIRST = WorkloadId(7)
ROOM = MadeRoom(
    at=EPOCH, planned=EPOCH + timedelta(hours=1), nodes=2, works=1, won_node_s=7_000, lost_node_s=600
)


def after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def moved(state: State = State.DRAINING, grace_s: float = 0, **changes: object) -> Workload:
    """A Job that was moved for the first."""
    requeue_state = RequeueState(
        stop_at=EPOCH + after(grace_s),
        preempted_for=FIRST,
        moved=Moved(at=EPOCH, first=FIRST, since=EPOCH - after(100), nodes=1),
    )
    reason = Reason.PREEMPTED if state is State.DRAINING else Reason.NONE
    made = a_workload("small", state=state, reason=reason, requeue_state=requeue_state)
    return replace(made, **changes) if changes else made  # type: ignore[arg-type]


def test_the_first_comes_before_what_was_moved_for_it() -> None:
    assert under_way([moved()], EPOCH).added == {FIRST: ROOM_FIRST}
    waiting = moved(State.PENDING)
    assert under_way([waiting], EPOCH).added == {FIRST: ROOM_FIRST, waiting.id: MOVED_FIRST}


@pytest.mark.parametrize(("after_s", "holds"), [(59, False), (60, True), (179, True)])
def test_other_work_is_kept_waiting_only_after_the_grace(after_s: float, holds: bool) -> None:
    found = under_way([moved(grace_s=60)], EPOCH + after(after_s))
    assert found.holds_until == (EPOCH + after(180) if holds else None)
    assert FIRST in found.added


@pytest.mark.parametrize(
    "work",
    [
        moved(State.RUNNING),
        moved(State.PENDING, generation=3, reason=Reason.USER_SUSPENDED),
        moved(requeue_state=RequeueState(preempted_for=9, moved=moved().requeue_state.moved)),
        a_workload("other"),
    ],
    ids=["it has restarted", "its user suspended it", "it is preempted for other work", "never moved"],
)
def test_nothing_is_first_when_nothing_is_under_way(work: Workload) -> None:
    assert under_way([work], EPOCH) == under_way([], EPOCH)


def test_it_is_over_two_minutes_after_the_grace_and_not_while_moved_work_is_read() -> None:
    assert under_way([moved()], EPOCH + after(120)).added == {}
    unread = moved(State.PENDING, generation=UNREAD, reason=Reason.PREEMPTED)
    assert under_way([unread], EPOCH).added


def test_work_that_is_preempted_for_other_work_later_is_not_being_moved() -> None:
    assert is_being_moved(moved())
    assert not is_being_moved(a_workload("other"))


def test_work_that_the_same_work_preempts_later_is_not_being_moved() -> None:
    again = preempt(moved(State.RUNNING), a_workload("first", id=FIRST, priority=9), EPOCH, EPOCH)
    assert again.requeue_state is not None
    assert not is_being_moved(moved(requeue_state=again.requeue_state))


def test_lost_in_fact_is_all_from_the_last_checkpoint_to_the_restart() -> None:
    mark, start = Moved(at=EPOCH, first=FIRST, since=EPOCH - after(300), nodes=2), EPOCH + after(90)
    real = settled(ROOM, start, [(mark, EPOCH + after(120), EPOCH - after(60))])
    assert (real.real_won_node_s, real.real_lost_node_s) == ((3600 - 90) * 2, (60 + 120) * 2)
    unsaved = settled(ROOM, start, [(mark, EPOCH + after(120), None)] * 2)
    assert unsaved.real_lost_node_s == (300 + 120) * 2 * 2, "also of two that started together"


def test_work_that_has_started_is_told_the_prediction_and_what_it_came_to() -> None:
    first = a_workload("first", state=State.RUNNING, requeue_state=RequeueState(room=ROOM))
    assert room_message(first).endswith(": 117 node-minutes won, 10 node-minutes lost by the plan")
    assert room_message(replace(first, state=State.PENDING)) == ""
    assert room_message(a_workload("other", state=State.RUNNING)) == ""
    assert prediction(ROOM) in room_message(first)


@pytest.mark.parametrize(
    ("node_s", "words"), [(0, "0 node-seconds"), (89, "89 node-seconds"), (90_000, "1,500 node-minutes")]
)
def test_node_time_is_in_minutes_once_there_are_some(node_s: float, words: str) -> None:
    assert node_time(node_s) == words
