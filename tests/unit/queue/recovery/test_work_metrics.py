"""Who waits, which nodes are free, and what could start on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import REGISTRY
from support.memory_store import MemoryStore, memory_ledger
from support.queue_bench import a_node
from support.queue_builders import a_new_workload, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.recovery.work_metrics import OTHERS, WorkCounts, WorkMetrics, count_work


def waiting(namespace: str = "team", **changes: Any) -> Workload:
    return a_workload(namespace=namespace, state=State.PENDING, **changes)


def counted(workloads: Sequence[Workload], nodes: Sequence[Node], hosts: Sequence[str] = ()) -> WorkCounts:
    return count_work(workloads, [(a_workload("live"), an_allocation(hosts))] if hosts else [], nodes)


def test_a_node_is_used_closed_or_free() -> None:
    counts = counted([], [a_node("a"), a_node("b"), a_node("c", cordoned=True)], hosts=["a"])
    assert counts.nodes == {"used": 1, "closed": 1, "free": 1}


def test_work_could_fit_if_it_waits_for_no_more_nodes_than_are_free() -> None:
    nodes = [a_node("a"), a_node("b")]
    assert counted([waiting(pods=2, reason=Reason.WAITING_FOR_NODES)], nodes).could_fit == 1
    assert counted([waiting(pods=2, reason=Reason.NONE)], nodes).could_fit == 1
    assert counted([waiting(pods=3, reason=Reason.WAITING_FOR_NODES)], nodes).could_fit == 0
    assert counted([waiting(pods=1, reason=Reason.QUEUE_HELD)], nodes).could_fit == 0


def test_namespaces_beyond_the_largest_share_one_value() -> None:
    counts = counted([waiting(f"team-{n}") for n in range(100) for _ in range(200 - n)], [])
    assert len(counts.pending) == 21
    assert counts.pending["team-0"] == 200
    assert sum(counts.pending.values()) == sum(200 - n for n in range(100))
    assert OTHERS in counts.pending


async def test_a_namespace_without_waiting_work_is_not_shown_any_more() -> None:
    ledger = await memory_ledger(store=MemoryStore())
    await ledger.upsert([a_new_workload("a", namespace="first")])
    await WorkMetrics(ledger, lambda: [a_node("n")]).update()
    shown = {"work_namespace": "first"}
    assert REGISTRY.get_sample_value("fluxqueue_pending_workloads", shown) == 1
    assert REGISTRY.get_sample_value("fluxqueue_nodes", {"use": "free"}) == 1
    assert REGISTRY.get_sample_value("fluxqueue_workloads", {"state": "Pending"}) == 1
    await WorkMetrics(await memory_ledger(store=MemoryStore()), list).update()
    assert REGISTRY.get_sample_value("fluxqueue_pending_workloads", shown) is None
