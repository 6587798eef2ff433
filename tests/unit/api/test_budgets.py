"""Each caller spends its own budget, and all together have one."""

from __future__ import annotations

from fluxqueue.api.budgets import Budgets, Rate

EACH = Rate(per_s=1.0, burst=2.0)


def test_a_budget_grows_with_time_up_to_its_burst() -> None:
    budgets = Budgets(EACH, None, 0.0)
    assert [budgets.spend("a", 0.0) for _ in range(3)] == [True, True, False]
    assert [budgets.spend("a", 1.0) for _ in range(2)] == [True, False]
    assert [budgets.spend("a", 100.0) for _ in range(3)] == [True, True, False]


def test_one_caller_spends_nothing_of_another_one() -> None:
    budgets = Budgets(EACH, Rate(per_s=1.0, burst=3.0), 0.0)
    assert [budgets.spend("a", 0.0) for _ in range(10)].count(True) == 2
    assert [budgets.spend("b", 0.0) for _ in range(10)].count(True) == 1, "all together spend three"


def test_what_is_refused_together_is_not_taken_from_the_caller() -> None:
    budgets = Budgets(EACH, Rate(per_s=1.0, burst=1.0), 0.0)
    assert [budgets.spend("a", 0.0), budgets.spend("b", 0.0), budgets.spend("b", 1.0)] == [True, False, True]


def test_callers_of_long_ago_are_forgotten() -> None:
    budgets = Budgets(EACH, None, 0.0)
    for number in range(5_000):
        budgets.spend(number, 0.0)
    assert len(budgets._callers) == 1_024
