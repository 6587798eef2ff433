"""Ledger, policies and matcher together on a real Postgres: grants, reasons and freed slots."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import make_node, make_pod
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.hostlists import decode
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.store import StaleLeader, Store
from fluxqueue.queue.tasks.triggers import ControlTask


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


async def test_work_is_granted_in_order_and_waits_behind_a_refusal(bench: Bench) -> None:
    await bench.submit(job("a", 3, "6"), job("b", 2, "5"), job("c", 1, "1"))
    await bench.cycle()
    assert (bench.row("a").state, bench.row("a").hosts) == (State.ALLOCATED, "n[0-2]")
    assert [bench.row(name).reason for name in "bc"] == [Reason.WAITING_FOR_NODES] * 2
    assert "strictly first come, first served" in bench.row("c").message
    assert ControlTask.RELEASE in bench.asked


async def test_unsatisfiable_work_gets_its_reason_even_behind_a_blocked_head(bench: Bench) -> None:
    await bench.submit(job("a", 4, "8"), job("b", 1, "1"), job("huge", 1, "9"))
    await bench.cycle()
    assert bench.row("huge").reason is Reason.UNSATISFIABLE
    assert "cpu" in bench.row("huge").message


async def test_unsatisfiable_work_starts_once_a_larger_node_is_added(bench: Bench) -> None:
    await bench.submit(job("huge", 1, "9"))
    await bench.cycle()
    bench.nodes.apply(a_node("big", "16"))
    await bench.cycle()
    assert (bench.row("huge").state, bench.row("huge").hosts) == (State.ALLOCATED, "big")


async def test_slots_and_allocations_that_end_are_granted_again(bench: Bench) -> None:
    await bench.submit(job("a", 3, "6"), job("b", 2, "5"))
    await bench.cycle()
    first = bench.row("a")
    assert first.jobid is not None
    await bench.ledger.end_slots([(first.jobid, 0)])
    await bench.cycle()
    assert bench.row("b").hosts == "n[0,3]"
    await bench.ledger.finish([Ending(first.id, State.COMPLETED, Outcome.SUCCEEDED)])
    await bench.cycle()
    assert await bench.held() == {bench.row("b").jobid: {"n0": 1, "n3": 1}}


async def test_a_lost_graph_is_filled_with_live_allocations_without_ended_slots(bench: Bench) -> None:
    await bench.submit(job("a", 3, "6"))
    await bench.cycle()
    first = bench.row("a")
    assert first.jobid is not None
    await bench.ledger.end_slots([(first.jobid, 1)])
    # another client initializes the graph
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())
    await bench.scheduler.cycle()
    assert bench.scheduler.last_error
    await bench.cycle()
    assert await bench.held() == {first.jobid: {"n0": 1, "n2": 1}}


async def test_a_new_leader_continues_and_the_old_one_is_refused(
    bench: Bench, store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion
) -> None:
    await bench.submit(job("a", 3, "6"), job("b", 2, "5"))
    await bench.cycle()
    async with a_leader(store, nodes, fluxion) as second:
        await second.cycle()
        assert await second.held() == {second.row("a").jobid: {"n0": 1, "n1": 1, "n2": 1}}
        assert second.row("b").reason is Reason.WAITING_FOR_NODES
    with pytest.raises(StaleLeader):
        await bench.submit(job("c", 1, "1"))


async def test_a_grant_whose_workload_ended_meanwhile_is_cancelled(bench: Bench) -> None:
    await bench.submit(job("a", 1, "8"))
    ended = bench.row("a")
    await bench.store.finish(
        bench.ledger.epoch, [Ending(ended.id, State.CANCELLED, Outcome.CANCELLED, "deleted")]
    )
    await bench.cycle()
    await bench.cycle()
    assert await bench.held() == {}


async def test_a_node_that_goes_down_gets_no_new_work_and_keeps_its_work(bench: Bench) -> None:
    await bench.submit(job("a", 1, "2"))
    await bench.cycle()
    cordoned = msgspec.convert(
        make_node("n0")
        .uid("uid-n0")
        .with_("metadata.resourceVersion", "2")
        .allocatable(cpu="8", memory="32Gi", pods="110")
        .cordoned()
        .build(),
        Node,
    )
    bench.nodes.apply(cordoned)
    await bench.submit(job("b", 1, "2"))
    await bench.cycle()
    assert bench.row("b").hosts == "n1"
    assert set(await bench.held()) == {bench.row("a").jobid, bench.row("b").jobid}


async def test_nodes_of_foreign_pods_are_granted_only_after_these_end(bench: Bench) -> None:
    def stranger(version: str, phase: str) -> Pod:
        pod = make_pod("stranger").namespace("elsewhere").uid("stranger").cpu("7").on_node("n0").phase(phase)
        return msgspec.convert(pod.with_("metadata.resourceVersion", version).build(), Pod)

    bench.pods.apply(stranger("1", "Running"))
    await bench.submit(job("a", 4, "2"))
    await bench.cycle()
    assert "n0" not in decode(bench.row("a").hosts)
    bench.pods.apply(stranger("2", "Succeeded"))
    await bench.submit(job("b", 1, "8"))
    await bench.cycle()
    assert bench.row("b").hosts == "n0"


async def test_pods_of_the_queue_count_through_their_slots_only(bench: Bench) -> None:
    await bench.submit(job("a", 1, "4"))
    await bench.cycle()
    ours = bench.row("a")
    pod = (
        make_pod("a-0")
        .cpu("4")
        .uid("a-0")
        .on_node(ours.hosts)
        .phase("Running")
        .allocation(ours.hosts, jobid=int(ours.jobid or 0))
    )
    pod = pod.with_(
        "metadata.ownerReferences",
        [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "a", "controller": True}],
    )
    bench.pods.apply(msgspec.convert(pod.with_("metadata.resourceVersion", "1").build(), Pod))
    await bench.submit(job("b", 1, "4"))
    await bench.cycle()
    assert bench.row("b").hosts == ours.hosts


async def test_a_lost_graph_is_detected_without_anything_to_match(bench: Bench) -> None:
    await bench.submit(job("a", 1, "2"))
    await bench.cycle()
    assert await bench.graph.alive()
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())
    assert not await bench.graph.alive()
    await bench.cycle()
    assert set(await bench.held()) == {bench.row("a").jobid}
