"""A Job whose pods request more than their template is matched again with the requests of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job, a_pod

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Requeue
from fluxqueue.queue.model.jobspecs import sizes_in
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """Four nodes of 4 cpu."""
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}", cpu="4") for number in range(4)])
    async with LocalFluxion() as fluxion, a_leader(store, nodes, fluxion) as made:
        yield made


def ignored(_task: ControlTask) -> None:
    """Ignore a control task that is requested."""


def a_queued(name: str, cpu: str) -> Job:
    return a_job(
        make_job(name).indexed(2).cpu(cpu).suspended().annotation("fluxqueue/suspended-by", "webhook"),
        uid=name,
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_gang_whose_pods_get_a_sidecar_requests_it_in_its_next_match(bench: Bench) -> None:
    caches = Caches(cast(Api, object()))
    caches.namespaces.apply(
        msgspec.convert(
            {"metadata": {"name": "default", "uid": "ns", "labels": {"fluxqueue/managed": "true"}}}, Namespace
        )
    )
    intake = IntakeController(cast(Api, object()), caches, bench.ledger, Trigger(ignored))
    subscribe(caches, bench.ledger, intake)
    intake.resync()
    working = asyncio.create_task(intake.run())
    for name in ("a", "b"):
        caches.jobs.apply(a_queued(name, "4"))
    await until(lambda: bench.ledger.by_uid("b") is not None)
    await bench.cycle()
    for name in ("a", "b"):
        pod = make_pod(f"{name}-0").cpu("4").with_("metadata.ownerReferences", owned(name))
        sidecar = {"name": "mesh", "resources": {"requests": {"cpu": "1"}}}
        caches.pods.apply(
            a_pod(
                pod.with_("spec.containers", [*pod.build()["spec"]["containers"], sidecar]), uid=f"{name}-0"
            )
        )
    await bench.ledger.requeue([Requeue(workload=bench.row("a").id, reason=Reason.NONE, message="")])
    intake.enqueue("a")
    await until(lambda: sizes_in(bench.row("a").jobspec)["pod"]["cpu"] == 5_000)
    caches.jobs.apply(a_queued("c", "3"))
    await until(lambda: bench.ledger.by_uid("c") is not None)
    assert sizes_in(bench.row("c").jobspec)["pod"]["cpu"] == 4_000
    await bench.cycle()
    await bench.cycle()
    row = bench.row("a")
    assert row.reason is Reason.UNSATISFIABLE
    assert "each of its pods asks for 1 cpu more than its template" in row.message
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


def owned(job: str) -> list[dict[str, object]]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}]
