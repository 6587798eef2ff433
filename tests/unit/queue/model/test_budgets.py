"""Budgets of accounts: their periods, their units, and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from support.builders import make_account

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.budgets import HOUR_S, NODE, Budget, bare_hours, format_hours

CORE_HOUR = 1_000 * HOUR_S


def tree(**budget: Any) -> AccountTree:
    return account_tree([msgspec.convert(make_account("md", budget=budget), FluxAccount)])


@pytest.mark.parametrize(
    ("months", "days", "first", "today", "begin", "end"),
    [
        (1, 0, "2000-01-01", "2026-11-26", "2026-11-01", "2026-12-01"),
        (1, 0, "2000-01-01", "2026-12-31", "2026-12-01", "2027-01-01"),
        (3, 0, "2000-01-01", "2026-11-26", "2026-10-01", "2027-01-01"),
        (12, 0, "2000-01-01", "2024-02-29", "2024-01-01", "2025-01-01"),
        (12, 0, "2026-10-01", "2026-09-30", "2025-10-01", "2026-10-01"),
        (1, 0, "2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
        (1, 0, "2026-01-15", "2026-11-14", "2026-10-15", "2026-11-15"),
        (0, 30, "2026-11-01", "2026-11-30", "2026-11-01", "2026-12-01"),
        (0, 30, "2026-11-01", "2026-12-01", "2026-12-01", "2026-12-31"),
        (0, 7, "2026-11-02", "2026-11-01", "2026-10-26", "2026-11-02"),
        (0, 366, "0001-01-01", "2026-11-01", "2026-03-12", "2027-03-13"),
        (3, 0, "0001-01-31", "2026-11-01", "2026-10-31", "2027-01-31"),
        (0, 1, "9999-12-31", "2026-11-01", "2026-11-01", "2026-11-02"),
        (12, 0, "9999-12-31", "2026-11-01", "2025-12-31", "2026-12-31"),
        (12, 0, "2024-02-29", "2027-02-28", "2027-02-28", "2028-02-29"),
    ],
)
def test_a_period_is_the_one_that_the_day_is_in(
    months: int, days: int, first: str, today: str, begin: str, end: str
) -> None:
    period = Budget({}, months, days, date.fromisoformat(first)).period_at(
        datetime.fromisoformat(f"{today}T23:59:59+00:00")
    )
    assert (period.start, period.end) == tuple(
        datetime.fromisoformat(f"{day}T00:00:00+00:00") for day in (begin, end)
    )
    assert period.start.tzinfo is UTC


def test_hours_are_kept_in_the_units_of_the_graph_times_seconds() -> None:
    budget = (
        tree(nodeHours=3, resourceHours={"cpu": "1.5", "memory": "2Gi", "nvidia.com/gpu": 4})
        .accounts["md"]
        .budget
    )
    assert budget is not None
    hours = {NODE: 3, "cpu": 1_500, "memory": 2_048, "nvidia.com:gpu": 4}
    assert budget.amounts == {kind: amount * HOUR_S for kind, amount in hours.items()}
    assert (budget.months, budget.days) == (1, 0)


def test_no_budget_is_lowered() -> None:
    budget = tree(resourceHours={"cpu": "5G", "memory": "80Pi"}).accounts["md"].budget
    assert budget is not None
    assert budget.amounts["cpu"] == 5 * 10**9 * CORE_HOUR, "the cores of a large machine for a year"
    assert bare_hours("memory", budget.amounts["memory"], budget.amounts["memory"]) == "83,890,000"


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            {"period": "week"},
            (
                "spec.budget.period: 'week' is no period: write month, quarter, year, "
                "or a number of days up to 366d"
            ),
        ),
        ({"period": "0d", "start": "2026-01-01"}, "spec.budget.period: '0d' is no period"),
        ({"period": "400d", "start": "2026-01-01"}, "spec.budget.period: '400d' is no period"),
        (
            {"period": "30d"},
            (
                "spec.budget.start: periods of days need the day on which the first one begins, "
                "such as 2026-10-01"
            ),
        ),
        ({"start": "2026-02-30"}, "spec.budget.start: '2026-02-30' is no day: write it as 2026-10-01"),
    ],
)
def test_a_period_that_cannot_be_read_is_named_and_there_is_no_budget(
    budget: dict[str, Any], message: str
) -> None:
    found = tree(nodeHours=1, **budget)
    (problem,) = found.problems["md"]
    assert problem.reason == "InvalidPeriod"
    assert problem.message.startswith(message)
    assert problem.message.endswith("; until then there is no budget")
    assert not found.budgeted


def test_a_quantity_that_cannot_be_read_has_no_budget_and_the_others_have() -> None:
    found = tree(resourceHours={"cpu": "lots", "memory": "1Gi"})
    assert found.problems["md"][0].message.startswith("spec.budget.resourceHours.cpu: ")
    assert [*(found.accounts["md"].budget or Budget({})).amounts] == ["memory"]


def test_the_work_of_an_account_uses_its_budget_and_those_above_it() -> None:
    documents = [
        make_account("site", budget={"nodeHours": 5}),
        make_account("md", parent="site"),
        make_account("a", parent="md"),
    ]
    found = account_tree([msgspec.convert(each, FluxAccount) for each in documents])
    assert found.budgeted
    assert [each.name for each in found.budgets_over("a")] == ["site"]
    assert found.budgets_over("nobody") == ()


def test_figures_are_rounded_to_a_thousandth_of_the_budget() -> None:
    most = 10_000 * CORE_HOUR
    assert format_hours("cpu", 9_990.4 * CORE_HOUR, most) == "9,990 core-hours"
    assert bare_hours("cpu", 0.4 * CORE_HOUR, most) == "0"
    assert format_hours(NODE, 2.5 * HOUR_S, 100 * HOUR_S) == "2.5 node-hours"
    assert format_hours("memory", 5 * 1024 * HOUR_S, 700 * 1024 * HOUR_S) == "5 GiB-hours of memory"
    assert format_hours("nvidia.com:gpu", HOUR_S / 50, HOUR_S / 10) == "0.02 hours of nvidia.com/gpu"
    assert bare_hours("cpu", 0.0, 0.0) == "0"
