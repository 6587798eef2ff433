"""Whose turn it is to have room pods."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.queue_builders import EPOCH

from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.provisioning import room_turns
from fluxqueue.queue.scheduling.provisioning.room_turns import RoomAsked, RoomTurns


class Line:
    """Requests by names such as ``a1``: the first of namespace a."""

    def __init__(self) -> None:
        self.turns = RoomTurns(10, 20)
        self.asked: dict[str, RoomAsked] = {}

    def ask(self, name: str, pods: int = 0) -> str:
        """Ask, for the first time with a number of pods; return why it waits."""
        number = len(self.asked)
        submitted = EPOCH + timedelta(seconds=number)
        asked = self.asked.setdefault(name, RoomAsked(submitted, WorkloadId(number), name[0], pods))
        return self.turns.take(("", name), asked)

    def leave(self, name: str) -> None:
        self.turns.leave(("", name))

    def next(self) -> str | None:
        workload = self.turns.next()
        return next((name for name, asked in self.asked.items() if asked.workload == workload), None)

    def in_the_way(self, *names: str) -> list[str]:
        return sorted(name for _, name in self.turns.in_the_way(("", name) for name in names))


def test_a_full_namespace_holds_up_only_itself() -> None:
    line = Line()
    assert line.ask("a1", 10) == ""
    assert "other work of namespace a by 10 of at most 10 pods: its own 10" in line.ask("a2", 10)
    assert line.ask("b1", 1) == ""
    assert line.in_the_way("b1", "a1", "a2") == ["a1"]


def test_nobody_of_a_namespace_passes_its_oldest_work() -> None:
    line = Line()
    assert line.ask("a1", 5) == ""
    assert "by 5 of at most 10 pods" in line.ask("a2", 6)
    assert line.ask("a3", 1).startswith("older work of namespace a waits")
    line.leave("a2")
    assert line.next() == "a3"
    assert line.ask("a3") == ""


def test_namespaces_take_turns_in_what_becomes_free() -> None:
    """One whose requests are never served, and are asked for again and again, comes after the others."""
    line = Line()
    assert [line.ask(name, 10) for name in ("a1", "b1")] == ["", ""]
    for name in ("a2", "a3", "b2", "c1"):
        assert line.ask(name, 10)
    assert line.in_the_way("a1", "b1") == ["a1", "b1"], "each for older work of its own namespace"
    line.leave("a1")
    assert line.next() == "a2"
    assert line.ask("c1"), "it is not its turn"
    assert line.ask("a2") == ""
    assert line.ask("a1"), "again, and still the oldest of all"
    line.leave("b1")
    assert line.next() == "b2"
    assert line.ask("b2") == ""
    line.leave("a2")
    assert line.next() == "c1"


def test_wide_work_gets_its_turn() -> None:
    line = Line()
    assert [line.ask(name, 8) for name in ("a1", "b1")] == ["", ""]
    assert "for other work by 16 of at most 20 pods: its own 9" in line.ask("c1", 9)
    assert line.ask("d1", 1), "it does not pass the wide one"
    line.leave("a1")
    assert line.ask("d1"), "still not"
    assert line.next() == "c1"
    assert line.ask("c1") == ""
    assert line.next() == "d1"


def test_who_has_room_keeps_it_when_it_asks_again() -> None:
    line = Line()
    assert line.ask("a1", 10) == ""
    assert line.ask("a2", 1)
    assert line.ask("a1") == ""
    assert line.turns.pods(("", "a1")) == 10
    assert line.turns.pods(("", "a2")) is None


def test_a_long_line_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each minute all that waits asks again."""
    line, compared = Line(), 0
    fits = RoomTurns._within_share

    def counted(turns: RoomTurns, asked: RoomAsked) -> bool:
        nonlocal compared
        compared += 1
        return fits(turns, asked)

    monkeypatch.setattr(room_turns.RoomTurns, "_within_share", counted)
    line.ask("a1", 10)
    for number in range(2, 1_000):
        assert line.ask(f"a{number}", 10)
    assert compared < 5_000


def test_no_more_ends_than_what_waits_needs() -> None:
    line = Line()
    assert [line.ask(f"{name}1", 4) for name in "abcde"] == [""] * 5
    keys = [f"{name}1" for name in "bacde"]
    assert line.in_the_way(*keys) == [], "nobody waits"
    assert line.ask("f1", 5)
    assert line.in_the_way(*keys) == ["a1", "b1"], "the first two that are named"
    assert line.in_the_way("a1") == [], "its end alone would help nobody"
