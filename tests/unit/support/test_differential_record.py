"""The record of random worlds goes on where it was interrupted."""

from __future__ import annotations

from pathlib import Path

from support.differential_cluster import Copy
from support.differential_judge import STARTED, Rule, Trial
from support.differential_record import Record
from support.differential_worlds import make_world


def trial(number: int) -> Trial:
    return Trial(make_world(1, number), Copy([], "q"), Copy([], "p"), verdict=STARTED, released=2)


def test_what_was_judged_is_not_judged_again_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "made" / "worlds.jsonl"
    Record(path, 1, "stock", "1.36").add(trial(3))
    failed = trial(4)
    failed.refusals["uid"] = "no room"
    failed.breaks(Rule.HELD, "its nodes are held")
    Record(path, 1, "stock", "1.36").add(failed)
    again = Record(path, 1, "stock", "1.36")
    assert again.numbers == {3, 4}
    assert [fault.rpartition(": ")[2] for fault in again.faults] == ["its nodes are held"]
    assert "differences: 1 of 'nodes held after a refusal'; 1 refusals of 4 releases" in again.summary()
    for other in (
        Record(path, 2, "stock", "1.36"),
        Record(path, 1, "stock", "1.37"),
        Record(None, 1, "stock", "1.36"),
    ):
        assert not other.numbers
