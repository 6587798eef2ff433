"""The status of a FluxAccount is written when it differs, and a failure of one does not affect the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.builders import make_account
from support.controller_bench import RecordedEvents, managed_caches, running, subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxaccounts import BudgetAmount, BudgetStatus, GuaranteedStatus
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.fair_share import FairShare
from fluxqueue.queue.status.fluxaccount_writer import FluxAccountWriter


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.queue.status.work_status_writer._PACE_S", 0.01)


@pytest.fixture
def memory() -> MemoryApi:
    memory = MemoryApi()
    memory.put("fluxaccounts", make_account("site"))
    memory.put("fluxaccounts", make_account("physics", parent="site"))
    return memory


@dataclass
class Shown:
    """What is known of the accounts."""

    fair_shares: dict[str, FairShare] = field(default_factory=dict)
    guaranteed: dict[str, list[GuaranteedStatus]] = field(default_factory=dict)
    budgets: dict[str, BudgetStatus] = field(default_factory=dict)


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
async def writer(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents, shown: Shown
) -> AsyncIterator[FluxAccountWriter]:
    caches = managed_caches(memory)
    writer = FluxAccountWriter(
        memory.api,
        caches,
        ledger,
        lambda: shown.fair_shares,
        lambda: lambda account: shown.guaranteed.get(account, []),
        lambda: shown.budgets,
        events.recorder,
    )
    async with running(subscribed(writer, caches, ledger).run()):
        yield writer


def status(memory: MemoryApi, name: str) -> Any:
    return memory.get("fluxaccounts", name).get("status", {})


async def test_counts_follow_the_rows_up_the_tree_and_return_to_zero(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxAccountWriter
) -> None:
    writer.resync()
    await until(lambda: status(memory, "site").get("running") == 0)
    started = ledger.put(
        a_workload(state=State.RUNNING, jobid=7, account="physics"), an_allocation(["n1", "n2"])
    )
    await until(
        lambda: all(
            (shown := status(memory, name))["running"] == 1 and shown["nodesInUse"] == 2
            for name in ("site", "physics")
        )
    )
    ledger.end(replace(started, state=State.COMPLETED))
    await until(lambda: status(memory, "site")["running"] == 0)


async def test_the_fair_share_is_shown_rounded_and_also_where_a_figure_is_zero(
    memory: MemoryApi, writer: FluxAccountWriter, shown: Shown
) -> None:
    shown.fair_shares = {
        "site": FairShare(1.0, 1_234_567.8, 1.0),
        "physics": FairShare(1 / 3, 0.0, 2.0, 0.666667),
    }
    writer.resync()
    await until(lambda: status(memory, "site") and status(memory, "physics"))
    assert status(memory, "site")["fairShare"] == {"share": 1.0, "use": 1_230_000}
    assert status(memory, "physics")["fairShare"] == {"share": 0.3333, "use": 0, "factor": 0.666667}
    shown.fair_shares = {}
    memory.put("fluxaccounts", make_account("md"))
    await until(lambda: status(memory, "md"))
    assert status(memory, "site")["fairShare"]["use"] == 1_230_000, (
        "what is not known yet stays as it is shown"
    )


async def test_what_is_guaranteed_is_shown_and_goes_with_the_guarantee(
    memory: MemoryApi, writer: FluxAccountWriter, shown: Shown
) -> None:
    shown.guaranteed = {"physics": [GuaranteedStatus("nodes", "2", "3", "1")]}
    writer.resync()
    await until(lambda: status(memory, "physics").get("guaranteed"))
    assert status(memory, "physics")["guaranteed"] == [
        {"name": "nodes", "guaranteed": "2", "used": "3", "borrowed": "1"}
    ]
    assert not status(memory, "site").get("guaranteed")
    shown.guaranteed = {}
    writer.resync()
    await until(lambda: not status(memory, "physics").get("guaranteed"))


async def test_a_parent_that_appears_ends_the_problem(memory: MemoryApi, writer: FluxAccountWriter) -> None:
    memory.put("fluxaccounts", make_account("md", parent="chemistry"))
    await until(
        lambda: status(memory, "md") and status(memory, "md")["conditions"][0]["reason"] == "ParentMissing"
    )
    memory.put("fluxaccounts", make_account("chemistry"))
    await until(lambda: status(memory, "md")["conditions"][0]["status"] == "True")


async def test_a_failure_of_one_account_is_reported_on_it(
    memory: MemoryApi, writer: FluxAccountWriter, events: RecordedEvents
) -> None:
    memory.fail_next("patch", "fluxaccounts/status", 422, "Invalid", "no such field")
    writer.resync()
    await until(lambda: status(memory, "site") and status(memory, "physics"))
    (reported,) = [(subject, reason) for subject, reason, _, _ in events.events]
    assert reported in (("FluxAccount site", "ProcessingFailed"), ("FluxAccount physics", "ProcessingFailed"))


async def test_what_is_left_of_a_budget_is_shown_with_its_zeros_and_goes_with_the_budget(
    memory: MemoryApi, writer: FluxAccountWriter, shown: Shown
) -> None:
    memory.put("fluxaccounts", make_account("physics", budget={"nodeHours": 5}))
    start, end = "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"
    left = BudgetStatus(start=start, end=end, amounts=[BudgetAmount(name="nodes", hours=5, used=5)])
    shown.budgets = {"physics": left, "site": left}
    writer.resync()
    await until(lambda: status(memory, "physics").get("budget"))
    amount = {"name": "nodes", "hours": 5, "used": 5, "promised": 0, "left": 0}
    assert status(memory, "physics")["budget"] == {"start": start, "end": end, "amounts": [amount]}
    assert not status(memory, "site").get("budget"), "it has none"
    shown.budgets = {}
    memory.put("fluxaccounts", make_account("md"))
    await until(lambda: status(memory, "md"))
    assert status(memory, "physics")["budget"]["end"] == end, "what is not known yet stays as it is shown"
    memory.put("fluxaccounts", make_account("physics") | {"status": status(memory, "physics")})
    writer.resync()
    await until(lambda: not status(memory, "physics").get("budget"))
