"""In which order complete requests are answered."""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.serving.turns import Turns


class Line:
    """Requests with names such as ``a1``, whose first letter is the address."""

    def __init__(self) -> None:
        self.rounds: list[Callable[[], None]] = []
        self.turns = Turns(self.rounds.append)
        self.started: list[str] = []

    def take(self, *names: str, large: bool = False) -> None:
        for name in names:
            self.turns.take(name[0], name, lambda name=name: self.started.append(name), large=large)  # type: ignore[misc]

    def run(self) -> list[str]:
        while self.rounds:
            self.rounds.pop(0)()
        return self.started


def test_a_request_starts_at_once_while_nobody_waits() -> None:
    line = Line()
    line.take("a1", "a2")
    assert line.started == ["a1", "a2"]
    assert line.turns.waiting == 0


def test_a_few_requests_start_in_each_round_of_the_loop() -> None:
    line = Line()
    line.take(*(f"a{number}" for number in range(9)))
    assert len(line.started) == 4
    assert line.turns.waiting == 5
    line.rounds.pop(0)()
    assert len(line.started) == 8
    assert line.run() == [f"a{number}" for number in range(9)]


def test_an_address_with_few_requests_does_not_wait_for_one_with_many() -> None:
    line = Line()
    line.take(*(f"a{number}" for number in range(104)), "b0")
    assert line.run().index("b0") <= 8
    assert len(line.started) == 105


def test_many_addresses_with_one_request_each_leave_every_second_turn_to_the_oldest() -> None:
    line = Line()
    line.take(*"ABCD")
    line.take("b0", "b1", "b2", "b3", *"acdefghijklmnopqrstuvwxyz")
    assert max(line.run().index(f"b{number}") for number in range(4)) <= 4 + 8
    assert len(line.started) == len(set(line.started)) == 33


def test_a_request_whose_client_has_gone_is_never_started() -> None:
    line = Line()
    line.take("a0", "a1", "a2", "a3", "a4", "b5", "a6")
    line.turns.leave("a4")
    line.turns.leave("b5")
    line.turns.leave("b5")
    assert line.run() == ["a0", "a1", "a2", "a3", "a6"]
    assert (line.turns.waiting, line.rounds) == (0, [])


def test_large_requests_get_one_turn_of_each_round() -> None:
    line = Line()
    line.take("a0", large=True)
    line.take(*(f"a{number}" for number in range(1, 20)), large=True)
    line.take(*(f"b{number}" for number in range(8)))
    line.rounds.pop(0)()
    assert [name[0] for name in line.started] == ["a", "b", "b", "b", "b", "a"]
    assert [name[0] for name in line.run()[6:11]] == ["b", "b", "b", "b", "a"]
    assert len(line.started) == 28
