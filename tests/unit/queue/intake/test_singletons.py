from __future__ import annotations

from datetime import timedelta

from support.controller_bench import subscribed
from support.queue_builders import EPOCH, a_new_workload, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.queue.intake.singletons import Singletons
from fluxqueue.queue.model.records import NewWorkload, Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import StartConditions

TRAIN = StartConditions(singleton="train")


def _ignore(_uid: str) -> None:
    """Enqueue nothing."""


def row(number: int, name: str = "train", **changes: object) -> Workload:
    """A pending workload, the later submitted the larger its number."""
    settings = {
        "id": WorkloadId(number),
        "uid": f"w{number}",
        "submitted_at": EPOCH + timedelta(seconds=number),
    }
    return a_workload(
        f"w{number}", **(settings | {"start_conditions": StartConditions(singleton=name)} | changes)
    )


def new(uid: str, **changes: object) -> NewWorkload:
    return a_new_workload(uid, name=uid, **({"start_conditions": TRAIN} | changes))


def test_a_new_one_waits_for_the_last_of_its_name_and_namespace_only() -> None:
    singletons = Singletons(RecordingLedger((row(1), None), (row(2), None)), _ignore)
    for each in (1, 2):
        singletons.workload_changed(WorkloadId(each))
    assert singletons.before(new("w3"), {}) == "Job default/w2"
    assert singletons.before(new("w4", namespace="other"), {}) == ""
    assert singletons.before(new("w5", start_conditions=StartConditions(singleton="test")), {}) == ""
    assert singletons.before(new("w6", start_conditions=StartConditions()), {}) == ""


def test_of_one_batch_each_waits_for_the_one_before() -> None:
    singletons, batch = Singletons(RecordingLedger(), _ignore), dict[tuple[str, str], str]()
    assert [singletons.before(new(uid), batch) for uid in ("a", "b", "c")] == [
        "",
        "Job default/a",
        "Job default/b",
    ]


def test_the_next_one_is_described_again_when_the_one_before_ends() -> None:
    enqueued: list[str] = []
    ledger = RecordingLedger()
    singletons = subscribed(Singletons(ledger, enqueued.append), ledger)
    rows = [ledger.put(row(number)) for number in (1, 2, 3)]
    enqueued.clear()
    ledger.end(rows[1])
    assert (enqueued, singletons.before(new("w3"), {})) == (["w3"], "Job default/w1")
    ledger.end(rows[0])
    assert (enqueued, singletons.before(new("w3"), {})) == (["w3", "w3"], "")


def test_one_that_was_described_behind_another_that_got_no_row_is_described_again() -> None:
    enqueued: list[str] = []
    ledger = RecordingLedger()
    singletons, batch = subscribed(Singletons(ledger, enqueued.append), ledger), dict[tuple[str, str], str]()
    assert [singletons.before(new(uid), batch) for uid in ("cancelled", "w1")] == [
        "",
        "Job default/cancelled",
    ]
    ledger.put(row(1))
    assert (enqueued, singletons.before(new("w1"), {})) == (["w1"], "")


def test_an_edit_of_the_name_changes_the_order_of_both_names() -> None:
    enqueued: list[str] = []
    ledger = RecordingLedger()
    singletons = subscribed(Singletons(ledger, enqueued.append), ledger)
    for number in (1, 2):
        ledger.put(row(number))
    ledger.put(row(1, "test"))
    assert (enqueued[-1], singletons.before(new("w2"), {})) == ("w1", "")
    assert "w2" in enqueued
    ledger.put(row(1, ""))
    assert singletons.before(new("w4", start_conditions=StartConditions(singleton="test")), {}) == ""
