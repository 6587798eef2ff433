"""Pods that keep autoscalers from taking nodes that work is about to use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.builders import make_node, make_queue
from support.controller_bench import running_controllers, until
from support.memory_api import MemoryApi
from support.node_request_bench import NAMESPACE, conditions
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import FluxionJobId, Reservation, Workload
from fluxqueue.queue.scheduling.provisioning.kept_nodes import KeptNodes
from fluxqueue.queue.store.deltas import Delta


class Bench:
    """Three nodes, and a queue that requests nodes by pods."""

    def __init__(self) -> None:
        self.server = MemoryApi()
        self.caches = Caches(self.server.api, own_namespace=NAMESPACE)
        self.server.show_in(self.caches)
        for name in ("a", "b", "c"):
            self.server.put("nodes", make_node(name).label(names.HOSTNAME_LABEL, f"host-{name}").build())
        self.server.put("fluxqueues", make_queue("growing", provision="pods"))
        self.ledger = RecordingLedger()
        self.keeper = self.new_leader()

    def new_leader(self) -> KeptNodes:
        return KeptNodes(self.server.api, self.caches, self.ledger, pause_s=0.01)

    def reserve(self, *nodes: str, queue: str = "growing") -> Workload:
        """Reserve nodes for a new workload."""
        row = self.ledger.put(a_workload(queue=queue))
        self.move(row, *nodes)
        return row

    def move(self, row: Workload, *nodes: str) -> None:
        """Reserve other nodes for a workload."""
        start = EPOCH + timedelta(hours=1)
        shares = tuple(NodeShare(node, {"pod": 1}, {"cpu": 100}) for node in nodes)
        made = Reservation(
            workload=row.id, jobid=FluxionJobId(9), first_start=start, start=start, end=None, shares=shares
        )
        self.ledger.apply(Delta(reservations=(made,)))

    def pods(self) -> list[dict[str, Any]]:
        return [pod for pod in self.server.all("pods") if names.KEEPS_LABEL in pod["metadata"]["labels"]]

    def kept(self) -> list[str]:
        """Nodes for which a pod asks."""
        asking = [
            pod for pod in self.pods() if conditions(pod) == {"PodScheduled": ("False", "Unschedulable")}
        ]
        return sorted(pod["metadata"]["annotations"][names.KEPT_NODE_ANNOTATION] for pod in asking)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with running_controllers(made.keeper):
        yield made


async def test_a_reserved_node_has_a_pod_that_prefers_it(bench: Bench) -> None:
    row = bench.reserve("a", "b")
    await until(lambda: bench.kept() == ["a", "b"])
    first = next(
        pod for pod in bench.pods() if pod["metadata"]["annotations"][names.KEPT_NODE_ANNOTATION] == "a"
    )
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-a"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    assert first["spec"]["affinity"] == {"nodeAffinity": preferred}
    assert first["spec"]["schedulerName"] == names.ROOM_SCHEDULER
    assert "resources" not in first["spec"]["containers"][0]
    bench.move(row, "b", "c")
    await until(lambda: bench.kept() == ["b", "c"])
    bench.ledger.end(row)
    await until(lambda: not bench.pods())


async def test_a_matched_node_is_kept_until_the_pods_are_there(bench: Bench) -> None:
    row = bench.ledger.put(a_workload(queue="growing", state=State.ALLOCATED), an_allocation(["a"]))
    await until(lambda: bench.kept() == ["a"])
    bench.ledger.put(replace(row, state=State.RUNNING), an_allocation(["a"]))
    await until(lambda: not bench.pods())


async def test_nodes_of_other_queues_and_missing_nodes_are_not_kept(bench: Bench) -> None:
    bench.reserve("a", queue="other")
    bench.reserve("b", "gone")
    await until(lambda: bench.kept() == ["b"])
    bench.server.put("fluxqueues", make_queue("growing", provision="gate"))
    await until(lambda: not bench.pods())


async def test_what_a_leader_left_is_completed_by_the_next(bench: Bench) -> None:
    """The first one died between a pod and its condition, and had a pod that nobody needs now."""
    bench.reserve("a")
    await until(lambda: bench.kept() == ["a"])
    (pod,) = bench.pods()
    bench.server.put("pods", {**pod, "status": {}})
    meta = {
        name: value
        for name, value in pod["metadata"].items()
        if name in ("namespace", "labels", "annotations")
    }
    stale = {**pod, "metadata": {**meta, "name": "keeps-stale"}}
    bench.server.put("pods", stale)
    async with running_controllers(bench.new_leader()):
        await until(lambda: bench.kept() == ["a"] and len(bench.pods()) == 1)


async def test_a_refused_request_is_repeated(bench: Bench) -> None:
    bench.server.fail_next("create", "pods", 500, "InternalError")
    bench.reserve("a", "b")
    await until(lambda: bench.server.calls_refused and bench.kept() == ["a", "b"])
