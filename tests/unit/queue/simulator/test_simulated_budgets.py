"""What a forecast counts of budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_builders import a_workload

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.records import Allocation, FluxionJobId
from fluxqueue.queue.model.spending import Spending
from fluxqueue.queue.simulator.simulated_budgets import SimulatedBudgets

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOURS = 40


def test_what_ended_is_counted_once_and_only_in_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[object] = []
    add = Spending.add

    def counted(spending: Spending, *args: Any) -> None:
        added.append(args)
        add(spending, *args)

    monkeypatch.setattr(Spending, "add", counted)
    tree = account_tree([msgspec.convert(make_account("md", budget={"nodeHours": 100}), FluxAccount)])
    budgets = SimulatedBudgets(tree, {})
    used = []
    for number in range(HOURS):
        start = NOW + timedelta(hours=number)
        workload, end = a_workload(id=number + 1, account="md"), int((start + timedelta(hours=1)).timestamp())
        jobid, shares = FluxionJobId(number + 1), (NodeShare("n0", {}, {}),)
        budgets.start(
            workload,
            Allocation(
                jobid=jobid, workload=workload.id, shares=shares, granted_at=start, start=start, end=None
            ),
        )
        budgets.end(workload.id, end)
        used.append(budgets.room(end).lines["md"].used["node"] / 3_600)
    assert used == [*range(1, 12), 0, *range(1, 29)], "of December from its first hour on"
    assert len(added) <= HOURS + 1
