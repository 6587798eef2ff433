"""A sweep resyncs every controller, repairs findings, and reads all of the tables only as often as they are
small.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from support.controller_bench import running, until
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import a_new_workload, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.remembered import remembered
from fluxqueue.queue.recovery.doctor import Doctor
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

FINDING = Finding(Difference.NO_REASON, "Job default/a", "Job default/a waits without a reason")


class Steps:
    """Records what a sweep does, in the place of doctor, controllers, adoption and retention."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.examined: dict[str, bool] = {}
        self.repaired: list[Finding] = []
        self.outages = 0

    async def examine(self, **options: bool) -> list[Finding]:
        self.done.append("examine")
        self.examined = options
        return [FINDING]

    async def repair(self, findings: list[Finding]) -> None:
        self.done.append("repair")
        self.repaired += findings

    async def reload(self) -> None:
        self.done.append("reload")
        if self.outages:
            self.outages -= 1
            raise DatabaseUnavailable("away")

    def resync(self) -> None:
        self.done.append("resync")

    async def adopt(self) -> None:
        self.done.append("adopt")

    async def prune(self) -> None:
        self.done.append("prune")

    async def measure(self) -> None:
        self.done.append("measure")

    def defer(self, task: ControlTask) -> None:
        self.done.append(str(task))


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def ledger() -> Ledger:
    return await memory_ledger(store=MemoryStore())


def sweeper(steps: Steps, ledger: Ledger) -> Sweeper:
    return Sweeper(
        ledger,
        cast("Doctor", steps),
        Trigger(steps.defer),
        (cast("Any", steps),),
        steps.adopt,
        steps.prune,
        steps.measure,
    )


async def test_a_sweep_compares_repairs_and_requests_new_runs(steps: Steps, ledger: Ledger) -> None:
    await ledger.upsert([a_new_workload("a")])
    await sweeper(steps, ledger).sweep()
    assert steps.done == ["resync", "examine", "repair", "measure", "release", "schedule", "prune"]
    assert steps.repaired == [FINDING]
    assert steps.examined == {"from_api": False, "thorough": True, "pending": True}


async def test_a_sweep_forgets_what_was_read_from_the_texts_of_requests(steps: Steps, ledger: Ledger) -> None:
    reads: list[str] = []

    @remembered(10)
    def length(text: str) -> int:
        reads.append(text)
        return len(text)

    assert [length("abc"), length("abc"), reads] == [3, 3, ["abc"]]
    await sweeper(steps, ledger).sweep()
    assert [length("abc"), reads] == [3, ["abc", "abc"]]


async def test_other_work_goes_on_between_the_comparisons_of_two_controllers(
    steps: Steps, ledger: Ledger
) -> None:
    async def others() -> None:
        while steps.done.count("resync") < 3:
            steps.done.append("other")
            await asyncio.sleep(0)

    three = (cast("Any", steps),) * 3
    sweeps = Sweeper(
        ledger, cast("Doctor", steps), Trigger(steps.defer), three, steps.adopt, steps.prune, steps.measure
    )
    await asyncio.gather(sweeps.resync(), others())
    assert steps.done == ["resync", "other"] * 2 + ["resync"]


async def test_a_large_queue_is_not_compared_row_by_row_in_each_sweep(
    steps: Steps, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.queue.recovery.sweep._FEW", -1)
    monkeypatch.setattr("fluxqueue.queue.recovery.sweep._MANY", -1)
    sweeps = sweeper(steps, ledger)
    thorough = []
    for _ in range(20):
        await sweeps.sweep()
        thorough.append(steps.examined["thorough"])
        assert steps.examined["pending"] is False
    assert thorough == [False] * 9 + [True] + [False] * 9 + [True]


@pytest.mark.parametrize(("pods", "thorough"), [(3, True), (4, False)])
async def test_one_large_gang_counts_with_its_pods(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, pods: int, thorough: bool
) -> None:
    """Reading 20,000 slots, for which matching waits, takes as long for one gang as for 20,000 Jobs."""
    monkeypatch.setattr("fluxqueue.queue.recovery.sweep._FEW", 3)
    ledger = RecordingLedger((a_workload(state=State.RUNNING), an_allocation(["n1"] * pods)))
    await sweeper(steps, ledger).sweep()
    assert steps.examined["thorough"] is thorough


async def test_memory_in_doubt_is_reloaded_until_postgres_answers(steps: Steps, ledger: Ledger) -> None:
    steps.outages = 1
    ledger.mark_in_doubt()
    async with running(sweeper(steps, ledger).watch_memory()):
        await until(lambda: "schedule" in steps.done)
    assert steps.done[:2] == ["reload", "reload"]
    assert steps.done[2:6] == ["adopt", "resync", "release", "schedule"]
