"""What the leader predicts, from starts and ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.controller_bench import subscribed
from support.queue_builders import EPOCH, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import BackfillDurations, Planning, Policy
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.users import programs_of
from fluxqueue.queue.scheduling import predicted_durations
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.predicted_durations import PredictedDurations, key_of

PLANNING = Planning(backfill_durations=BackfillDurations.PREDICTED)
PREDICTING = {"default": Discipline(Policy.EASY, planning=PLANNING)}


def waiting(user: str = "ann") -> Workload:
    return a_workload(submitted_by=user, duration_s=3_600)


def run_for(ledger: RecordingLedger, minutes: int, user: str = "ann") -> None:
    """Have work of a user run and end."""
    ran = ledger.put(a_workload(submitted_by=user, state=State.RUNNING, started_at=ledger.now))
    ledger.now += timedelta(minutes=minutes)
    ledger.end(replace(ran, state=State.COMPLETED, finished_at=ledger.now))


async def test_work_is_predicted_from_what_its_user_ran_under_this_leader() -> None:
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    for minutes in (5, 15):
        run_for(ledger, minutes)
    await predictions.begin_cycle(PREDICTING)
    assert predictions.of(waiting()) == 600
    assert predictions.of(waiting("bob")) is None


async def test_an_end_counts_once_though_it_is_also_in_the_tables() -> None:
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    run_for(ledger, 5)
    await predictions.begin_cycle(PREDICTING)
    assert predictions.of(waiting()) is None
    run_for(ledger, 7)
    assert predictions.of(waiting()) == 360


async def test_a_queue_that_does_not_ask_gets_no_predictions() -> None:
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    run_for(ledger, 5)
    run_for(ledger, 5)
    for discipline in (Discipline(Policy.EASY), Discipline(Policy.FCFS, planning=PLANNING)):
        assert await predictions.begin_cycle({"default": discipline}) == set()
        assert not predictions.any
        assert predictions.of(waiting()) is None


async def test_what_waits_of_the_same_user_is_predicted_anew_after_an_end() -> None:
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    own, other = ledger.put(waiting()), ledger.put(waiting("bob"))
    assert await predictions.begin_cycle(PREDICTING) == {own.id, other.id}, "the queue has just asked for it"
    assert await predictions.begin_cycle(PREDICTING) == set()
    run_for(ledger, 5)
    assert await predictions.begin_cycle(PREDICTING) == {own.id}
    assert await predictions.begin_cycle({}) == {own.id, other.id}, "no longer"


async def test_very_much_work_of_a_user_is_predicted_anew_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand took a second after each end."""
    monkeypatch.setattr(predicted_durations, "_MOST_AT_ONCE", 10)
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    own = [ledger.put(waiting()) for _ in range(25)]
    await predictions.begin_cycle(PREDICTING)
    run_for(ledger, 5)
    first = await predictions.begin_cycle(PREDICTING)
    run_for(ledger, 5)
    second = await predictions.begin_cycle(PREDICTING)
    assert (len(first), len(second), first & second) == (10, 10, set())
    assert predictions.more, "another cycle is to follow"
    later = own.pop()
    ledger.put(replace(later, queue="other"))
    parts = [await predictions.begin_cycle(PREDICTING) for _ in range(3)]
    assert [len(part) for part in parts] == [10, 4, 0]
    assert not predictions.more
    assert second.union(*parts) == {each.id for each in own}, "all since the last end"


async def test_work_that_waits_again_has_not_ended() -> None:
    ledger = RecordingLedger()
    predictions = subscribed(PredictedDurations(ledger), ledger)
    run_for(ledger, 5)
    ran = ledger.put(a_workload(submitted_by="ann", state=State.RUNNING, started_at=EPOCH))
    again = a_workload(submitted_by="ann", id=ran.id, uid=ran.uid, state=State.PENDING)
    ledger.put(again)
    ledger.end(again)
    await predictions.begin_cycle(PREDICTING)
    assert predictions.of(waiting()) is None


def test_a_namespace_stands_for_a_user_who_is_not_known() -> None:
    assert key_of(a_workload()) == (programs_of("default"), "", "default")
    assert key_of(a_workload(submitted_by="namespace:default")) != key_of(a_workload())
    assert key_of(waiting()) == ("ann", "", "default")
