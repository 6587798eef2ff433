"""The order by weights in whole cycles: who starts first, who keeps its reservation, and who is preempted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.fluxqueues import FluxQueue, Policy, Preemption
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.priority_keeper import PriorityKeeper
from fluxqueue.queue.store import Store

TREE = account_tree(msgspec.convert([make_account("physics"), make_account("bio")], list[FluxAccount]))
POLICIES = pytest.mark.parametrize("policy", list(Policy))


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def keeper(bench: Bench, **weights: int) -> PriorityKeeper:
    """Of the queues ``default`` and ``other`` with these weights."""
    queues: ObjectCache[FluxQueue] = ObjectCache()
    spec = {"priorityWeights": weights}
    documents: list[dict[str, Any]] = [
        {"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec} for name in ("default", "other")
    ]
    queues.replace(msgspec.convert(documents, list[FluxQueue]))
    return PriorityKeeper(
        bench.ledger,
        queues,
        lambda: TREE,
        half_life_s=3_600,
        resource_weights={"cpu": 0.001},
        reordered=bench.scheduler.soon,
    )


def of(account: str, name: str, pods: int = 4, queue: str = "default", **more: Any) -> NewWorkload:
    return replace(job(name, pods, "8", **more), account=account, queue=queue)


def running(bench: Bench, names: str) -> str:
    return "".join(name for name in names if bench.row(name).state is not State.PENDING)


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


@POLICIES
async def test_the_account_that_ran_less_goes_first_also_over_queues_and_reservations(
    bench: Bench, policy: Policy
) -> None:
    bench.policy, bench.other_queues = policy, {"other": Discipline(policy)}
    order = keeper(bench, fairShare=1_000)
    await bench.submit(of("physics", "a", duration="1h"))
    await bench.cycle()
    await bench.submit(of("physics", "b", duration="1h"))
    await bench.submit(of("bio", "c", queue="other", duration="1h"))
    await bench.cycle()
    await order.refresh()
    await bench.cycle()
    await end(bench, "a")
    await bench.cycle()
    assert running(bench, "bc") == "c"
    await end(bench, "c")
    await bench.cycle()
    assert running(bench, "b") == "b"


async def test_a_new_leader_has_the_order_of_the_one_before(bench: Bench) -> None:
    await bench.submit(of("physics", "a"))
    await bench.cycle()
    await bench.submit(of("physics", "b"))
    await bench.submit(of("bio", "c"))
    await keeper(bench, fairShare=1_000).refresh()
    await bench.ledger.load()
    await keeper(bench, fairShare=1_000).refresh()
    assert [each.uid for each in bench.ledger.pending()] == ["c", "b"]


@pytest.mark.parametrize(("weight", "then"), [(0, State.DRAINING), (1_000, State.ALLOCATED)])
async def test_work_that_comes_first_in_the_order_is_not_preempted(
    bench: Bench, weight: int, then: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.policy, bench.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
    await bench.submit(of("bio", "low"))
    await bench.cycle()
    await bench.submit(of("physics", "urgent", priority=10))
    await bench.ledger.mark_released([jobid] if (jobid := bench.row("low").jobid) is not None else [])

    async def charged(*_: Any) -> dict[str, float]:
        return {"physics": 5.0, "bio": 1.0}

    monkeypatch.setattr(bench.ledger.account_use, "charge_accounts", charged)
    await keeper(bench, fairShare=weight).refresh()
    await bench.cycle()
    assert bench.row("low").state is then
