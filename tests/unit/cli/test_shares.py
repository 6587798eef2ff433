"""The tree of accounts as people see it."""

from __future__ import annotations

import io
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_account

from fluxqueue.api.fluxaccounts import (
    BudgetAmount,
    BudgetStatus,
    FairShareStatus,
    FluxAccount,
    FluxAccountStatus,
    UserShareStatus,
)
from fluxqueue.cli import shares
from fluxqueue.cli.api_client import ApiClient


def an_account(name: str, use: int = 0, factor: float | None = None, **spec: Any) -> FluxAccount:
    account = msgspec.convert(make_account(name, **spec), FluxAccount)
    return msgspec.structs.replace(
        account, status=FluxAccountStatus(fair_share=FairShareStatus(use=use, factor=factor))
    )


SITE = [
    an_account("site", 1000, 1.0, namespaces=["ops"]),
    an_account("physics", 600, 0.5, parent="site", shares=3),
    an_account("biology", 300, 0.25, parent="site"),
    an_account("guests", 0, 0.75, shares=0),
]


def test_each_line_has_the_figures_of_its_factor_and_the_tree_its_own_work() -> None:
    lines = [line.split() for line in shares.table(SITE).replace("(own work)", "(own-work)").splitlines()]
    assert lines == [
        ["ACCOUNT", "SHARES", "SHARE", "USE", "USED", "LEVEL", "FACTOR"],
        ["site", "1", "100.0%", "1000", "100.0%", "1", "-"],
        ["(own-work)", "1", "20.0%", "100", "10.0%", "2", "1"],
        ["physics", "3", "60.0%", "600", "60.0%", "1", "0.5"],
        ["biology", "1", "20.0%", "300", "30.0%", "0.667", "0.25"],
        ["guests", "0", "0.0%", "0", "0.0%", "0", "0.75"],
    ]


def test_accounts_below_another_are_indented_and_one_that_used_nothing_is_far_ahead() -> None:
    found = shares.table(
        [an_account("site"), an_account("a", parent="site"), an_account("b", 5, parent="site")], titles=False
    )
    assert [line[:3] for line in found.splitlines()] == ["sit", "  a", "  b"]
    assert found.splitlines()[1].split()[-2:] == ["inf", "-"]


def test_what_rounding_leaves_of_a_parent_is_no_work_of_its_own() -> None:
    found = shares.table([an_account("site", 1010), an_account("a", 1000, parent="site")])
    assert "own work" not in found


def test_without_accounts_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "list_accounts", lambda _client: [])
    out = io.StringIO()
    assert shares.shares(cast("ApiClient", None), out) == 0
    assert out.getvalue() == "There are no FluxAccounts: no use is counted, and nobody has shares.\n"


def test_what_is_left_of_budgets_has_a_line_for_each_resource() -> None:
    amounts = [
        BudgetAmount(name="cpu", hours=10_000, used=9_990, promised=20, left=-10),
        BudgetAmount(name="nodes", hours=12.5, left=12.5),
    ]
    status = FluxAccountStatus(
        budget=BudgetStatus(start="2026-11-01T00:00:00Z", end="2026-12-01T00:00:00Z", amounts=amounts)
    )
    found = shares.budgets([*SITE, msgspec.structs.replace(an_account("md"), status=status)])
    assert [line.split() for line in found.splitlines()] == [
        ["ACCOUNT", "BUDGET", "UNTIL", "HOURS", "USED", "RUNNING", "LEFT"],
        ["md", "cpu", "2026-12-01", "10,000", "9,990", "20", "-10"],
        ["md", "nodes", "2026-12-01", "12.5", "0", "0", "12.5"],
    ]
    assert shares.budgets(SITE) == ""


def test_an_account_that_is_shared_among_users_has_a_line_for_each() -> None:
    team = an_account("team", 400, 0.5)
    users = [UserShareStatus("alice", 300, 0.25), UserShareStatus("bob", 100, 0.375)]
    fair = FairShareStatus(use=400, factor=0.5, users=users)
    found = shares.table([msgspec.structs.replace(team, status=FluxAccountStatus(fair_share=fair))])
    assert [line.split() for line in found.splitlines()[2:]] == [
        ["alice", "-", "-", "300", "75.0%", "-", "0.25"],
        ["bob", "-", "-", "100", "25.0%", "-", "0.375"],
    ]
