"""What work is once a preemption is withdrawn, and which notices may be."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.records import ReleaseMode, SlotState, Workload
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.withdrawals import end_of_going_on, going_on, jobs_of_grown, notice_of

SOON = EPOCH + timedelta(minutes=5)
HELD = an_allocation(["n0", "n1", "n2"], states=[SlotState.TAKEN, SlotState.TAKEN, SlotState.ENDED])


def evicted(**changes: Any) -> Workload:
    told = RequeueState(losses=2, stop_at=SOON, preempted_for=9)
    settings = {
        "state": State.DRAINING,
        "reason": Reason.PREEMPTED,
        "message": "for another",
        "jobid": 7,
        "requeue_state": told,
        **changes,
    }
    return a_workload("victim", **settings)


def giving_back(ranks: tuple[int, ...], due: tuple[int, ...] = (), **changes: Any) -> Workload:
    given = GivenBack(
        **{
            "jobid": 7,
            "ranks": ranks,
            "due": due,
            "stop_at": SOON,
            "message": "gives back",
            "preempted_for": 9,
            **changes,
        }
    )
    return a_workload(
        "wide", state=State.RUNNING, jobid=7, requeue_state=RequeueState(losses=1, given_back=given)
    )


def test_work_in_its_grace_has_a_notice_for_the_work_that_it_was_told_to_stop_for() -> None:
    notice = notice_of(evicted(), HELD, EPOCH)
    assert notice is not None
    assert (notice.preempted_for, notice.stop_at, notice.ranks) == (9, SOON, {0, 1})
    notice = notice_of(giving_back((0, 1), due=(0,)), HELD, EPOCH)
    assert notice is not None
    assert (notice.preempted_for, notice.stop_at, notice.ranks) == (9, SOON, {0, 1})


@pytest.mark.parametrize(
    "workload",
    [
        evicted(requeue_state=RequeueState(stop_at=EPOCH, preempted_for=9)),
        evicted(requeue_state=RequeueState(stop_at=SOON)),
        evicted(reason=Reason.NODES_UNAVAILABLE),
        giving_back((1,), stop_at=EPOCH),
        giving_back((1,), preempted_for=0),
        giving_back((1,), jobid=6),
        giving_back((2,)),
        giving_back((1,), due=(1,)),
        a_workload("runs", state=State.RUNNING, jobid=7),
    ],
    ids=[
        "over",
        "for nobody known",
        "other cause",
        "given, over",
        "given, nobody",
        "former",
        "ended",
        "due before",
        "none",
    ],
)
def test_there_is_no_notice_that_could_be_withdrawn(workload: Workload) -> None:
    assert notice_of(workload, HELD, EPOCH) is None


def test_a_pod_by_which_a_job_grew_is_known_by_the_message_of_its_job() -> None:
    job, other = giving_back(()), giving_back((), message="gives another back")
    pod = evicted(kind="Pod", message="gives back")
    gave_back = [(job, HELD), (other, HELD)]
    assert list(jobs_of_grown([pod], gave_back)) == [(pod, job, HELD)]
    for told in (replace(pod, kind="Job"), replace(pod, state=State.RUNNING), replace(pod, message="")):
        assert list(jobs_of_grown([told], gave_back)) == []
    stopping = replace(job, state=State.DRAINING, reason=Reason.PREEMPTED)
    assert list(jobs_of_grown([pod], [(stopping, HELD)])) == []


@pytest.mark.parametrize(("started_at", "state"), [(EPOCH, State.RUNNING), (None, State.ALLOCATED)])
def test_work_that_goes_on_is_as_it_was(started_at: Any, state: State) -> None:
    row = evicted(started_at=started_at)
    assert going_on(row, HELD) == replace(
        row, state=state, reason=Reason.NONE, message="", requeue_state=RequeueState(losses=2)
    )


def test_a_pod_that_goes_on_hands_no_submit_time_to_another() -> None:
    told = RequeueState(stop_at=SOON, preempted_for=9, owner="o", submitted_at=EPOCH)
    assert (
        going_on(evicted(requeue_state=told, release_mode=ReleaseMode.POD), HELD).requeue_state
        == RequeueState()
    )


def test_a_job_keeps_given_back_what_has_ended_or_was_given_before() -> None:
    assert going_on(giving_back((0, 1)), HELD).requeue_state == RequeueState(losses=1)
    given = going_on(giving_back((0, 1, 2), due=(0,)), HELD).requeue_state.given_back
    assert given is not None
    assert (given.ranks, given.due, given.preempted_for) == ((0, 2), (0, 2), 0)
    assert given.message == "Job default/wide gave 2 of its pods back and goes on with the others"


def test_work_that_goes_on_ends_as_stated_or_if_that_is_past_as_planned() -> None:
    row, planned = evicted(duration_s=3600), replace(HELD, end=SOON)
    assert end_of_going_on(row, planned, EPOCH) == EPOCH + timedelta(hours=1)
    assert end_of_going_on(row, planned, EPOCH + timedelta(hours=2)) == SOON
    assert end_of_going_on(evicted(duration_s=None), planned, EPOCH) is None
