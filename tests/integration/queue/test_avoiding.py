"""A match avoids nodes that refused a pod, unless the work needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.builders import make_pod
from support.queue_bench import Bench, a_leader, a_node, job
from support.queue_builders import a_pod

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.api.texts import time_text
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import Ending, Eviction, Requeue
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.store import Store

NOW = datetime.now(UTC)


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


@pytest.fixture
async def bench(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion, lambda: NOW) as made:
        made.policy = Policy.EASY
        yield made


def refusing(*nodes: str, owner: str = "") -> RequeueState:
    return RequeueState(
        starts=1,
        owner=owner,
        failure="pod p could not be bound: it is full",
        refused={node: NodeRefusal(NOW, NOW + timedelta(minutes=10)) for node in nodes},
    )


async def refused(bench: Bench, name: str, pods: int, *nodes: str) -> None:
    """Requeue a Job whose pods these nodes refused."""
    await bench.submit(job(name, pods, "8"))
    await bench.cycle()
    row = bench.row(name)
    await bench.ledger.evict(
        [
            Eviction(
                workload=row.id, reason=Reason.BIND_FAILED, message="refused", requeue_state=refusing(*nodes)
            )
        ]
    )
    await bench.ledger.requeue([Requeue(workload=row.id, reason=Reason.BIND_FAILED, message="refused")])
    await bench.submit(job(name, pods, "8"))


async def test_nodes_that_refused_no_pod_are_preferred(bench: Bench) -> None:
    await refused(bench, "first", 2, "n0")
    await bench.cycle()
    assert bench.row("first").hosts == "n[1-2]"


async def test_work_that_needs_every_node_is_matched_on_the_refusing_one_too(bench: Bench) -> None:
    await refused(bench, "first", 4, "n0")
    await bench.cycle()
    assert bench.row("first").hosts == "n[0-3]"


async def test_the_reason_names_the_avoided_nodes_while_the_others_are_busy(bench: Bench) -> None:
    await refused(bench, "first", 2, "n0")
    await bench.submit(job("runs", 3, "8", priority=5))
    await bench.submit(job("like", 1, "8"))
    await bench.cycle()
    assert bench.row("runs").hosts == "n[0-2]"
    await bench.cycle()
    row = bench.row("first")
    assert (row.state, row.reason) == (State.PENDING, Reason.WAITING_FOR_NODES)
    until = time_text(NOW + timedelta(minutes=10))
    assert (
        f"not on n0 (refused a pod at {time_text(NOW)}, until {until}): pod p could not be bound"
        in row.message
    )


async def test_a_refusal_without_avoided_nodes_applies_to_no_other_work(bench: Bench) -> None:
    await bench.submit(job("runs", 3, "8", priority=5))
    await bench.cycle()
    assert bench.row("runs").hosts == "n[0-2]"
    await bench.submit(job("first", 1, "8", duration="1m"))
    await bench.cycle()
    row = bench.row("first")
    assert row.hosts == "n3"
    await bench.ledger.evict(
        [
            Eviction(
                workload=row.id, reason=Reason.BIND_FAILED, message="refused", requeue_state=refusing("n3")
            )
        ]
    )
    await bench.ledger.requeue([Requeue(workload=row.id, reason=Reason.BIND_FAILED, message="refused")])
    await bench.submit(job("first", 1, "8", duration="1m"), job("behind", 1, "8", duration="1m"))
    await bench.cycle()
    assert bench.row("first").state is State.PENDING
    assert bench.row("behind").hosts == "n3"


async def test_a_new_workload_starts_with_the_requeue_state_of_its_owner(bench: Bench) -> None:
    await bench.submit(replace(job("web-y", 1, "8"), requeue_state=refusing("n0", owner="uid-of-web")))
    await bench.submit(replace(job("web-y", 1, "4"), requeue_state=RequeueState()))
    await bench.cycle()
    assert bench.row("web-y").requeue_state == refusing("n0", owner="uid-of-web")
    assert bench.row("web-y").hosts == "n1"


async def test_the_next_leader_knows_the_requeue_state_of_an_owner(
    bench: Bench, store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion
) -> None:
    await bench.submit(job("web-x", 1, "8"))
    await bench.cycle()
    row = bench.row("web-x")
    requeue_state = refusing("n0", owner="uid-of-web")
    await bench.ledger.evict(
        [Eviction(workload=row.id, reason=Reason.BIND_FAILED, message="refused", requeue_state=requeue_state)]
    )
    await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED, "the pod was deleted")])
    async with a_leader(store, nodes, fluxion) as second:
        pod = a_pod(make_pod("web-y").owned_by("ReplicaSet", "web"), uid="web-y")
        assert (
            second.ledger.owner_requeue_states.of(pod, second.ledger.clock()).refused == requeue_state.refused
        )
