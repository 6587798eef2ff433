"""The backlogs follow the ledger, and many changes at once are applied some at a time."""

from __future__ import annotations

from typing import Any

import pytest
from support.controller_bench import subscribed
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling import backlogs
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.policies import backlog
from fluxqueue.queue.scheduling.policies.backlog import Backlog

COUNT = 700
PART = 100


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backlog, backlogs):
        monkeypatch.setattr(module, "PART", PART)


def work(number: int, **values: Any) -> Workload:
    return a_workload(f"w{number}", id=WorkloadId(number), uid=f"w{number}", **values)


def a_ledger() -> RecordingLedger:
    return RecordingLedger(*((work(number), None) for number in range(1, COUNT + 1)))


def turn_all(ledger: RecordingLedger) -> None:
    """Reverse the order of all work."""
    ledger.added_priority = lambda workload: workload.id
    assert ledger.reprioritise([WorkloadId(number) for number in range(1, COUNT + 1)])


def test_new_priorities_of_all_work_leave_turns_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = a_ledger()
    made = subscribed(Backlogs(ledger), ledger)
    list(made.refreshing())
    turn_all(ledger)
    looks = 0
    key_of, row = backlog.key_of, Backlog._row

    def counted(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            nonlocal looks
            looks += 1
            return call(*arguments)

        return run

    monkeypatch.setattr(ledger, "get", counted(ledger.get))
    monkeypatch.setattr(backlog, "key_of", counted(key_of))
    monkeypatch.setattr(Backlog, "_row", counted(row))
    told: list[WorkloadId] = []
    before, most = 0, 0
    for part in made.refreshing():
        most, before = max(most, looks - before), looks
        assert len(part) <= PART
        told += part
    assert most < 2 * PART
    assert sorted(told) == [*range(1, COUNT + 1)]
    assert [workload.id for workload in made.by_queue["default"]] == [*range(COUNT, 0, -1)]


def test_few_changes_are_applied_at_once() -> None:
    ledger = a_ledger()
    made = subscribed(Backlogs(ledger), ledger)
    list(made.refreshing())
    ledger.put(work(1, queue="other"))
    ledger.put(work(2, state=State.RUNNING))
    assert [sorted(part) for part in made.refreshing()] == [[1, 2]]
    assert [made.queue_of(WorkloadId(number)) for number in (1, 2, 3)] == ["other", None, "default"]
    assert [*made.refreshing()] == []


def test_what_changes_meanwhile_is_applied_too() -> None:
    ledger = a_ledger()
    made = subscribed(Backlogs(ledger), ledger)
    refreshing = made.refreshing()
    assert not next(refreshing)
    ledger.put(work(1, state=State.RUNNING))
    turn_all(ledger)
    list(refreshing)
    assert [workload.id for workload in made.by_queue["default"]] == [*range(COUNT, 1, -1)]
    assert not made.changed


@pytest.mark.parametrize("steps", [1, 8, 15, 25])
def test_what_was_given_up_is_applied_next_time(steps: int) -> None:
    ledger = a_ledger()
    made = subscribed(Backlogs(ledger), ledger)
    refreshing = made.refreshing()
    for _ in range(steps):
        next(refreshing)
    refreshing.close()
    told = {each for part in made.refreshing() for each in part}
    assert told == {*range(1, COUNT + 1)}
    assert len(made.by_queue["default"]) == COUNT


@pytest.mark.parametrize("arriving", [70, PART, 3 * PART])
def test_what_changes_meanwhile_is_applied_too_however_few_changed_before(arriving: int) -> None:
    ledger = RecordingLedger(*((work(number), None) for number in range(1, arriving + 1)))
    made = subscribed(Backlogs(ledger), ledger)
    for part in made.refreshing():
        if not part:
            ledger.put(work(1, state=State.RUNNING))
    assert (len(made.by_queue["default"]), made.changed) == (arriving - 1, set())


@pytest.mark.parametrize("steps", range(1, 27, 2))
def test_work_that_ends_after_a_refresh_was_given_up_is_in_no_backlog(steps: int) -> None:
    ids = range(1, COUNT + 1)
    ledger = RecordingLedger(*((work(number, queue=f"q{number % 2}"), None) for number in ids))
    made = subscribed(Backlogs(ledger), ledger)
    refreshing = made.refreshing()
    for _ in range(steps):
        next(refreshing)
    refreshing.close()
    for number in ids:
        ledger.put(work(number, state=State.RUNNING))
    list(made.refreshing())
    assert [len(each) for each in made.by_queue.values()] in ([], [0], [0, 0])
