"""What an earlier leader requested is deleted when the cluster may not grow any more."""

from __future__ import annotations

import asyncio

import pytest
from support.builders import make_node, make_pod
from support.controller_bench import running_controllers, until
from support.node_request_bench import NAMESPACE, NodeRequestBench
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.kube.wire import Request
from fluxqueue.queue.scheduling.provisioning.kept_nodes import KeptNodes
from fluxqueue.queue.scheduling.provisioning.leftover_requests import LeftoverRequests


def cleaner(bench: NodeRequestBench) -> LeftoverRequests:
    return LeftoverRequests(bench.server.api, NAMESPACE, pause_s=0.01)


async def ask(bench: NodeRequestBench) -> None:
    """Leave a request for nodes, and of the queue's own namespace another pod."""
    bench.server.put("pods", make_pod("other").namespace(NAMESPACE).build())
    async with running_controllers(bench.provisioner()):
        bench.wait("grows")
        await until(lambda: bench.count() == 3)


@pytest.mark.parametrize("way", ["gate", "pods"])
async def test_all_requests_go_and_nothing_else(way: str) -> None:
    bench = NodeRequestBench(way)
    await ask(bench)
    await asyncio.wait_for(cleaner(bench).run(), 5)
    assert bench.nothing()
    assert [pod["metadata"]["name"] for pod in bench.server.all("pods")] == ["other"]


async def test_no_node_is_kept() -> None:
    bench = NodeRequestBench("pods")
    bench.server.put("nodes", make_node("a").label(names.HOSTNAME_LABEL, "a").build())
    bench.ledger.put(a_workload(queue="growing", state=State.ALLOCATED), an_allocation(["a"]))
    async with running_controllers(KeptNodes(bench.server.api, bench.caches, bench.ledger, pause_s=0.01)):
        await until(lambda: bench.server.all("pods"))
    await asyncio.wait_for(cleaner(bench).run(), 5)
    assert not bench.server.all("pods")


async def test_it_tries_again_what_fails_and_asks_for_each_kind_no_more() -> None:
    bench = NodeRequestBench("pods")
    await ask(bench)
    bench.server.fail_next("list", "pods", 500, "InternalError")
    bench.server.fail_next("delete", "pods", 500, "InternalError")
    await asyncio.wait_for(cleaner(bench).run(), 5)
    assert bench.nothing()
    answer, paths = bench.server.call, list[str]()

    async def counted(request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        paths.append(request.path.partition("?")[0].rpartition("/")[2])
        return await answer(request, timeout_s, tries=tries)

    bench.server.call = counted  # type: ignore[method-assign]
    await asyncio.wait_for(cleaner(bench).run(), 5)
    assert paths == ["pods", "pods", "provisioningrequests"]


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (403, "Forbidden")])
async def test_a_cluster_without_provisioning_requests_is_not_asked_again(status: int, reason: str) -> None:
    bench = NodeRequestBench("gate")
    bench.server.fail_next("list", "provisioningrequests", status, reason)
    await asyncio.wait_for(cleaner(bench).run(), 5)


async def test_without_the_right_to_delete_templates_the_request_goes() -> None:
    """The templates go with the FluxJob."""
    bench = NodeRequestBench("gate")
    await ask(bench)
    bench.server.fail_next("delete", "podtemplates", 403, "Forbidden")
    await asyncio.wait_for(cleaner(bench).run(), 5)
    assert not bench.requests()
