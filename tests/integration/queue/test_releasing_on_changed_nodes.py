"""What is checked again before a release: the real store, matcher and releaser, and a stand-in API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_job
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import Allocation
from fluxqueue.queue.release.object_release import ObjectReleaser
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.release.releaser import Releaser
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


class StandIn:
    """An API server that accepts every patch, and has labels on Jobs that the cache does not show yet."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self.patched: list[str] = []
        self.labels = labels or {}
        self.caches = Caches(cast(Api, self))

    async def patch(self, _kind: object, name: str, _body: Mapping[str, Any], **_how: object) -> None:
        self.patched.append(name)

    async def get(self, _kind: object, name: str, namespace: str) -> Job:
        job = self.caches.jobs.get(namespace, name)
        assert job is not None
        labels = {**(job.metadata.labels or {}), **self.labels}
        return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, labels=labels))


async def nothing(_job: Job, _allocation: Allocation) -> None:
    """Prepare nothing: the pods need nothing."""


def ignored(_task: ControlTask) -> None:
    """Ignore a control task that is triggered."""


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    async with LocalFluxion() as fluxion, a_leader(store, nodes, fluxion) as made:
        yield made


async def granted(bench: Bench, api: StandIn, *names: str) -> dict[str, str]:
    """Match Jobs of one pod that fills its node, and return the node of each."""
    for name in names:
        job = a_job(
            make_job(name).indexed(1).cpu("8").suspended().annotation("fluxqueue/suspended-by", "webhook"),
            uid=name,
        )
        api.caches.jobs.apply(job)
        described = describe_job(job, api.caches.cluster_context("default"))
        assert described is not None
        await bench.submit(described)
    await bench.cycle()
    api.caches.nodes.replace(bench.nodes.list())
    return {workload.name: allocation.hosts[0] for workload, allocation in bench.ledger.live()}


def a_releaser(bench: Bench, api: StandIn, reread: list[str]) -> Releaser:
    gates = PodGates(cast(Api, api), bench.ledger, api.caches.pods.get_by_uid)
    objects = ObjectReleaser(cast(Api, api), api.caches, bench.ledger.clock, gates, nothing)
    subscribe(api.caches, objects)
    return Releaser(objects, bench.ledger, Trigger(ignored), reread.append)


async def test_work_whose_node_changed_since_the_match_is_matched_again(bench: Bench) -> None:
    api, reread = StandIn(), list[str]()
    node = (await granted(bench, api, "a", "b"))["a"]
    api.caches.nodes.apply(a_node(node, cordoned=True))
    await a_releaser(bench, api, reread).release_due()
    assert api.patched == ["b"]
    assert (bench.row("a").state, bench.row("b").state) == (State.PENDING, State.ALLOCATED)
    assert bench.row("a").message == f"Job default/a is planned again: node {node} is down: it is cordoned"
    assert reread == ["a"]


async def test_released_work_keeps_its_node_although_it_is_cordoned(bench: Bench) -> None:
    api = StandIn()
    node = (await granted(bench, api, "a"))["a"]
    ((_, allocation),) = bench.ledger.live()
    api.labels = {"fluxqueue/jobid": str(allocation.jobid)}
    api.caches.nodes.apply(a_node(node, cordoned=True))
    await a_releaser(bench, api, []).release_due()
    ((_, allocation),) = bench.ledger.live()
    assert bench.ledger.is_released(allocation)
    assert api.patched == []
