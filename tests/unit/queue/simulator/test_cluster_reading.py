"""What a forecast reads, and what ends it."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import make_job, make_node, make_pod
from support.memory_api import MemoryApi

from fluxqueue.api.jobs import Job
from fluxqueue.kube.errors import Forbidden
from fluxqueue.queue.simulator.cluster_reading import TooManyPods, read_cluster

JOB = msgspec.convert(make_job("mine").build(), Job)


def a_server(pods: int = 2) -> MemoryApi:
    server = MemoryApi()
    server.put("namespaces", {"metadata": {"name": "default", "labels": {"team": "a"}}})
    server.put("nodes", make_node("n0").build())
    server.put("priorityclasses", {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    for number in range(pods):
        server.put("pods", make_pod(f"on-{number}").with_("spec.nodeName", "n0").build())
    server.put("pods", make_pod("waits").build())
    server.put(
        "pods", make_pod("over").with_("spec.nodeName", "n0").with_("status.phase", "Succeeded").build()
    )
    return server


async def test_only_pods_that_use_nodes_are_read() -> None:
    found = await read_cluster(a_server().api, JOB)
    assert [pod.metadata.name for pod in found.pods] == ["on-0", "on-1"]
    assert [node.metadata.name for node in found.nodes] == ["n0"]


async def test_the_class_that_counts_where_none_is_named_is_read_for_every_job() -> None:
    found = await read_cluster(a_server().api, JOB)
    assert [each.value for each in found.priority_classes] == [7]
    assert found.namespace_labels == {"team": "a"}


async def test_more_pods_than_are_to_be_read_end_it() -> None:
    with pytest.raises(TooManyPods):
        await read_cluster(a_server(pods=4).api, JOB, most_pods=3)


@pytest.mark.parametrize("plural", ["nodes", "pods", "fluxjobs", "fluxqueues", "priorityclasses"])
async def test_what_may_not_be_read_is_said(plural: str) -> None:
    server = a_server()
    server.fail_next("list", plural, 403, "Forbidden", f"cannot list {plural}")
    with pytest.raises(Forbidden, match=f"cannot list {plural}"):
        await read_cluster(server.api, JOB)
