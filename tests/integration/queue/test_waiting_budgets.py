"""Work beyond what may wait of its namespace, with real tables and a real matcher:
over cycles, a change of leader and a deletion.
"""

from __future__ import annotations

from typing import cast

import pytest
from support.builders import make_job
from support.controller_bench import managed_caches
from support.memory_api import MemoryApi
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import WaitingBudget
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

NAMES = [f"j{number}" for number in range(6)]


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    """Two nodes of 8 cores."""
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node("n0"), a_node("n1")])
    return cache


def ignored(_task: ControlTask) -> None:
    """Ignore a control task that is requested."""


class Intake:
    """The intake of one leader, one batch at a time. Two workloads of a namespace may wait at once."""

    def __init__(self, bench: Bench, caches: Caches) -> None:
        self.caches = caches
        self.controller = IntakeController(
            cast(Api, object()),
            caches,
            bench.ledger,
            Trigger(ignored),
            waiting=WaitingBudget(workloads=2),
        )
        subscribe(caches, bench.ledger, self.controller)

    async def sweep(self) -> None:
        """Read every object and every row once, the newest first."""
        await self.controller.take_in(NAMES[::-1])


def shown() -> Caches:
    """Six Jobs that wait, each of which takes a whole node."""
    caches = managed_caches(MemoryApi())
    for name in NAMES:
        caches.jobs.apply(
            a_job(
                make_job(name).cpu("8").suspended().annotation("fluxqueue/suspended-by", "webhook"), uid=name
            )
        )
    return caches


def states(bench: Bench, names: list[str]) -> str:
    """One letter for each workload: R has nodes, - was left out, w waits with its request, . has ended."""
    rows = [bench.ledger.by_uid(name) for name in names]
    return "".join(
        "."
        if row is None
        else "R"
        if row.state is State.ALLOCATED
        else "-"
        if row.left_out
        else "w"
        if row.jobspec
        else "?"
        for row in rows
    )


async def test_what_was_left_out_starts_in_order_over_leaders_and_deletions(
    store: Store, nodes: ObjectCache[Node]
) -> None:
    async with LocalFluxion() as matcher, a_leader(store, nodes, matcher) as bench:
        intake = Intake(bench, shown())
        await intake.controller.take_in(NAMES)
        assert states(bench, NAMES) == "ww----"
        await bench.cycle()
        assert states(bench, NAMES) == "RR----", "what was left out is in no cycle"
        await intake.sweep()
        await intake.sweep()
        assert states(bench, NAMES) == "RRww--"
        rows = {row.name: row for row in await store.pending()}
        assert [(rows[name].jobspec, rows[name].shape, rows[name].reason) for name in NAMES[4:]] == [
            ("", "", Reason.QUEUE_LIMIT)
        ] * 2
        assert "at once (2 workloads over all queues)" in rows["j4"].message
        await bench.cycle()
        assert bench.row("j2").reason is Reason.WAITING_FOR_NODES
    async with LocalFluxion() as matcher, a_leader(store, nodes, matcher) as bench:
        intake = Intake(bench, shown())
        assert states(bench, NAMES) == "RRww--"
        await intake.sweep()
        await bench.cycle()
        assert states(bench, NAMES) == "RRww--"
        deleted = intake.caches.jobs.get("default", "j3")
        assert deleted is not None
        intake.caches.jobs.remove(deleted)
        await intake.controller.take_in(["j3"])
        await intake.sweep()
        assert states(bench, NAMES) == "RRw.w-"
        await bench.ledger.finish(
            [Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED) for name in ("j0", "j1")]
        )
        await bench.cycle()
        await intake.sweep()
        assert states(bench, NAMES) == "..R.Rw"
        last = intake.caches.jobs.get("default", "j5")
        assert last is not None
        intake.caches.jobs.remove(last)
        await intake.controller.take_in(["j5"])
        assert states(bench, NAMES[5:]) == "."


async def test_what_was_left_out_can_be_deleted(store: Store, bench: Bench) -> None:
    intake = Intake(bench, shown())
    await intake.controller.take_in(NAMES)
    row = bench.row("j5")
    job = intake.caches.jobs.get("default", "j5")
    assert job is not None
    intake.caches.jobs.remove(job)
    await intake.controller.take_in(["j5"])
    assert states(bench, NAMES) == "ww---."
    (ended,) = await store.workloads([row.id])
    assert (ended.state, ended.message) == (State.CANCELLED, "Job default/j5 was deleted while it waited")
