"""What the crash suite measures: the numbers in docs/reference/crash-tests.md are only as good as this."""

from __future__ import annotations

from support.replicas import LifeCount


def test_one_more_cycle_of_the_same_life_is_recovery() -> None:
    before = LifeCount(pid=7, number=20.0)
    assert not LifeCount(pid=7, number=20.0).went_on_since(before)
    assert LifeCount(pid=7, number=21.0).went_on_since(before)


def test_a_restarted_queue_need_not_catch_up_with_its_former_cycles() -> None:
    before = LifeCount(pid=7, number=20.0)
    assert not LifeCount(pid=8, number=0.0).went_on_since(before)
    assert LifeCount(pid=8, number=1.0).went_on_since(before)
