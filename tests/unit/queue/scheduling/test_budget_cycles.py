"""Cycles under budgets, with the matcher in process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import START, a_machine, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.queue.model.accounts import account_tree


async def test_work_that_is_told_no_figures_any_more_keeps_no_day_that_passes() -> None:
    async with a_machine() as bench:
        spec = {"resourceHours": {"cpu": 20}}
        bench.accounts = account_tree([msgspec.convert(make_account("md", budget=spec), FluxAccount)])
        await bench.submit(replace(job("runs", 2, "8", "1h"), account="md"))
        await bench.cycle()
        await bench.submit(*(replace(job(f"w{number}", 1, "8", "1h"), account="md") for number in range(101)))
        await bench.cycle()
        figures, general = "' is used up until 2026-", "' leaves too little for it in this period"
        assert [figures in bench.row("w99").message, general in bench.row("w100").message] == [True, True]
        await bench.submit(replace(job("urgent", 1, "8", "1h", priority=9), account="md"))
        await bench.cycle()
        assert [figures in bench.row("w98").message, general in bench.row("w99").message] == [True, True]


@pytest.mark.parametrize("policy", [Policy.EASY, Policy.CONSERVATIVE])
async def test_small_work_starts_behind_gangs_that_are_too_wide_for_the_rest_of_a_budget(
    policy: Policy,
) -> None:
    async with a_machine(lambda: START + timedelta(days=1)) as bench:
        bench.policy = policy
        bench.accounts = account_tree(
            [msgspec.convert(make_account("md", budget={"nodeHours": 1}), FluxAccount)]
        )
        wide = [job(f"wide{number}", 2, "8", f"{40 + number / 2}m") for number in range(30)]
        await bench.submit(*(replace(each, account="md") for each in (*wide, job("small", 1, "8", "30m"))))
        await bench.cycle()
        await bench.cycle()
        assert bench.row("small").state is State.ALLOCATED
        for name in ("wide0", "wide29"):
            row = bench.row(name)
            assert (row.state, row.reason) == (State.PENDING, Reason.ACCOUNT_LIMIT)
            assert row.message.startswith("the budget of the account 'md' is ")
        assert bench.row("wide0").message.startswith(
            "the budget of the account 'md' is 1 node-hours for a period, and this may use 1.333"
        )
