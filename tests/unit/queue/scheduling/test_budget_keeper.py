"""Budgets over whole histories: exact after every crash, and never exceeded but by what ran already.

``BUDGET_HISTORIES=10000`` makes more of them.
"""

from __future__ import annotations

import os

from support.budget_histories import BudgetHistory, summary

HISTORIES = int(os.environ.get("BUDGET_HISTORIES", "200"))
STEPS = 40


async def test_random_histories_with_crashes_use_no_more_than_their_budgets() -> None:
    histories = {seed: BudgetHistory(seed) for seed in range(HISTORIES)}
    for seed, history in histories.items():
        try:
            await history.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
    granted, refused, crashes = summary(histories)
    assert min(granted, refused, crashes) > HISTORIES, "the histories try nothing"
