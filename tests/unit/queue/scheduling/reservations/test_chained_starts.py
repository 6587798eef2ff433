from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.controller_bench import subscribed
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import DependencyState, StartConditions, track
from fluxqueue.queue.scheduling.reservations import chained_starts
from fluxqueue.queue.scheduling.reservations.chained_starts import ChainedStarts

NOW = int(EPOCH.timestamp())


def waiting(
    name: str,
    after: str,
    *,
    reason: Reason = Reason.WAITING_FOR_DEPENDENCY,
    known: bool = True,
    **changes: Any,
) -> Workload:
    """A workload of a minute that waits; the uid of each Job is its name."""
    tracked = [track(each) for each in parse_dependencies(after)]
    seen = tuple(msgspec.structs.replace(each, target=each.name if known else "") for each in tracked)
    conditions = StartConditions(
        after=seen, begin_at=changes.pop("begin_at", None), singleton=changes.pop("singleton", "")
    )
    return a_workload(name, uid=name, reason=reason, start_conditions=conditions, **changes)


def starts(
    ledger: RecordingLedger,
    workloads: Sequence[Workload],
    planned: dict[str, int] | None = None,
    most: int = 100,
) -> dict[str, int]:
    """Return the seconds from now to each start."""
    by_name = {workload.name: workload.id for workload in workloads}
    found = ChainedStarts(ledger).earliest(
        {by_name[name]: NOW + at for name, at in (planned or {}).items()}, NOW, most
    )
    return {name: found[workload_id] - NOW for name, workload_id in by_name.items() if workload_id in found}


def test_a_chain_follows_the_planned_start_of_its_first_member() -> None:
    work = [
        a_workload("a", uid="a"),
        waiting("b", "ok:job/a"),
        waiting("c", "any:job/b+10s"),
        waiting("d", "start:job/c"),
    ]
    ledger = RecordingLedger(*((each, None) for each in work))
    assert starts(ledger, work, {"a": 30}) == {"b": 90, "c": 160, "d": 160}


def test_running_work_ends_as_its_allocation_is_planned() -> None:
    runs = a_workload("a", uid="a", state=State.RUNNING, started_at=EPOCH)
    held = replace(an_allocation(["n1"]), end=EPOCH + timedelta(seconds=45))
    work = [runs, waiting("b", "ok:job/a"), waiting("c", "start:job/a+5s")]
    ledger = RecordingLedger((runs, held), *((each, None) for each in work[1:]))
    assert starts(ledger, work) == {"b": 45, "c": 5}


def test_the_last_of_several_and_a_time_decide() -> None:
    later = EPOCH + timedelta(seconds=500)
    work = [
        a_workload("a", uid="a"),
        a_workload("b", uid="b", duration_s=200),
        waiting("c", "ok:job/a, ok:job/b"),
        waiting("d", "ok:job/a", begin_at=later),
        waiting("e", "", reason=Reason.WAITING_FOR_BEGIN, begin_at=later),
    ]
    ledger = RecordingLedger(*((each, None) for each in work))
    assert starts(ledger, work, {"a": 0, "b": 10}) == {"c": 210, "d": 500, "e": 500}


@pytest.mark.parametrize(
    "unknown",
    [
        waiting("u", "ok:job/a", known=False),
        waiting("u", "ok:job/endless"),
        waiting("u", "ok:job/unplanned"),
        waiting("u", "ok:job/u"),
        waiting("u", "", singleton="train"),
    ],
    ids=["not in the queue", "without an end", "without a planned start", "a cycle", "a singleton"],
)
def test_nothing_is_said_of_work_of_which_nothing_is_known_nor_of_what_follows_it(unknown: Workload) -> None:
    others = [
        a_workload("endless", uid="endless", duration_s=None),
        a_workload("unplanned", uid="unplanned"),
        waiting("v", "any:job/u"),
    ]
    ledger = RecordingLedger(*((each, None) for each in (*others, unknown)))
    assert starts(ledger, [*others, unknown], {"endless": 0}) == {}


def test_work_whose_target_has_just_ended_may_start_now() -> None:
    work = [waiting("b", "ok:job/gone+5s")]
    assert starts(RecordingLedger((work[0], None)), work) == {"b": 5}


def test_only_the_first_of_each_queue_are_returned() -> None:
    work = [
        a_workload("a", uid="a"),
        *(waiting(f"w{number}", f"ok:job/a+{number}s") for number in range(1, 5)),
    ]
    ledger = RecordingLedger(*((each, None) for each in work))
    assert starts(ledger, work, {"a": 0}, most=2) == {"w1": 61, "w2": 62}


def test_a_chain_of_many_members_needs_no_deep_recursion_whatever_their_order() -> None:
    chain = [waiting(f"w{number}", f"ok:job/w{number - 1}") for number in range(1, 5_000)]
    work = [a_workload("w0", uid="w0"), *chain]
    ledger = RecordingLedger(*((each, None) for each in reversed(work)))
    assert starts(ledger, work, {"w0": 0}, most=5_000)["w4999"] == 4_999 * 60


def test_work_that_waits_no_more_is_forgotten() -> None:
    work = waiting("b", "ok:job/gone")
    ledger = RecordingLedger((work, None))
    chained = subscribed(ChainedStarts(ledger), ledger)
    satisfied = msgspec.structs.replace(work.start_conditions.after[0], state=DependencyState.SATISFIED)
    ledger.put(replace(work, reason=Reason.NONE, start_conditions=StartConditions(after=(satisfied,))))
    assert not chained
    assert chained.earliest({}, NOW, 100) == {}


def test_a_start_beyond_the_plan_is_not_told() -> None:
    """The end of a chain of long work, in a queue of its own, was in a year that no date has,
    and each cycle failed on it.
    """
    links = [
        waiting(f"j{number}", f"ok:job/j{number - 1}+3650d", duration_s=315_360_000)
        for number in range(1, 500)
    ]
    work = [a_workload("j0", uid="j0"), *links, waiting("last", "ok:job/j499", queue="other")]
    ledger = RecordingLedger(*((each, None) for each in work))
    found = starts(ledger, work, {"j0": 0})
    assert [*found] == ["j1", "j2", "j3", "j4", "j5"]


@pytest.mark.parametrize("order", ["times", "chain", "backwards", "singletons"])
def test_of_very_many_only_so_many_are_looked_at(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand took half a second, each time, in which nothing was matched.
    What another queue has of them is looked at too.
    """
    monkeypatch.setattr(chained_starts, "_MOST_VISITED", 200)
    later = EPOCH + timedelta(days=300)
    alone = waiting("alone", "", queue="other", reason=Reason.WAITING_FOR_BEGIN, begin_at=later)
    many = [
        waiting(f"w{number}", "", reason=Reason.WAITING_FOR_BEGIN, begin_at=later)
        if order == "times"
        else waiting(f"w{number}", "", singleton="train")
        if order == "singletons"
        else waiting(f"w{number}", f"ok:job/w{number + (-1 if order == 'chain' else 1)}")
        for number in range(3_000)
    ]
    ledger = RecordingLedger(*((each, None) for each in (*many, alone)))
    chained, looked_at = ChainedStarts(ledger), 0
    read = ledger.get

    def get(workload_id: WorkloadId) -> Workload | None:
        nonlocal looked_at
        looked_at += 1
        return read(workload_id)

    monkeypatch.setattr(ledger, "get", get)
    found = chained.earliest({}, NOW, 100)
    assert looked_at <= 2 * 200
    assert found[alone.id] == int(later.timestamp())
    assert len(found) == (101 if order == "times" else 101 if order == "chain" else 1)


def test_work_that_is_moved_to_another_queue_waits_there() -> None:
    work = waiting("b", "ok:job/gone+5s", queue="one")
    ledger = RecordingLedger((work, None))
    chained = subscribed(ChainedStarts(ledger), ledger)
    ledger.put(replace(work, queue="two"))
    assert chained.earliest({}, NOW, 100) == {work.id: NOW + 5}
    ledger.end(work)
    assert not chained
