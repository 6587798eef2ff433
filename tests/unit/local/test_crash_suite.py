"""What the crash suite measures: the numbers in docs/reliability.md are only as good as this."""

from __future__ import annotations

from crash_suite import CycleCount


def test_one_more_cycle_of_the_same_life_is_recovery() -> None:
    before = CycleCount(pid=7, cycles=20.0)
    assert not CycleCount(pid=7, cycles=20.0).went_on_since(before)
    assert CycleCount(pid=7, cycles=21.0).went_on_since(before)


def test_a_queue_that_began_anew_need_not_catch_up_with_the_cycles_of_its_former_life() -> None:
    before = CycleCount(pid=7, cycles=20.0)
    assert not CycleCount(pid=8, cycles=0.0).went_on_since(before)
    assert CycleCount(pid=8, cycles=1.0).went_on_since(before)
