"""Which nodes work is matched without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.scheduling.reasons.avoided_nodes import AvoidedNodes

UNTIL = START + timedelta(minutes=10)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        await made.graph.ensure()
        yield made


async def refused(bench: Bench, pods: int, *nodes: str, until_minutes: int = 10) -> Workload:
    """Return a pending workload whose pods these nodes refused."""
    await bench.submit(job("a", pods, "8"))
    refusals = {node: NodeRefusal(START, START + timedelta(minutes=until_minutes)) for node in nodes}
    requeue_state = RequeueState(starts=1, failure="pod p could not be bound", refused=refusals)
    await bench.ledger.set_requeue_states({bench.row("a").id: requeue_state})
    return bench.row("a")


async def test_nodes_that_refused_a_pod_are_left_out(bench: Bench) -> None:
    avoided = AvoidedNodes(bench.ledger, bench.graph)
    assert await avoided.exclude([await refused(bench, 2, "n1", "n0")]) == [("n0", "n1")]


async def test_nodes_without_which_the_work_could_never_start_are_not_left_out(bench: Bench) -> None:
    avoided = AvoidedNodes(bench.ledger, bench.graph)
    assert await avoided.exclude([await refused(bench, 4, "n0")]) == [()]
    assert avoided.avoiding == {}


async def test_refusals_that_are_over_do_not_count(bench: Bench) -> None:
    avoided = AvoidedNodes(bench.ledger, bench.graph)
    assert await avoided.exclude([await refused(bench, 1, "n0", until_minutes=0)]) == [()]


async def test_the_reason_of_work_that_waits_names_what_it_avoids_in_this_cycle(bench: Bench) -> None:
    avoided = AvoidedNodes(bench.ledger, bench.graph)
    row = await refused(bench, 1, "n0")
    await avoided.exclude([row])
    waits = ReasonChange(workload=row.id, reason=Reason.WAITING_FOR_NODES, message="no node is free")
    never = ReasonChange(workload=row.id, reason=Reason.UNSATISFIABLE, message="too large")
    refined = [change.message for change in avoided.refine([waits, never])]
    assert refined[0].startswith(
        "no node is free; not on n0 (refused a pod at 2026-11-21T08:00:00Z, until 2026-11-21T08:10:00Z)"
    )
    assert refined[0].endswith("pod p could not be bound")
    assert refined[1] == "too large"
    avoided.begin_cycle()
    assert avoided.refine([waits]) == [waits]
