"""Two pods with one host port never share a node, even if they belong to different workloads."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.queue_bench import Bench, a_node, job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.port_volume_pools import MAX_PORTS, MAX_PORTS_OF_NAMESPACE
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import NewWorkload


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


def running(name: str, node: str, builder: PodBuilder) -> Pod:
    return msgspec.convert(
        builder.uid(name).on_node(node).phase("Running").with_("metadata.resourceVersion", "1").build(), Pod
    )


def hosts(bench: Bench, name: str) -> list[str]:
    allocation = bench.ledger.allocation(bench.row(name).id)
    return [slot.node for slot in allocation.slots] if allocation is not None else []


async def test_pods_of_two_gangs_with_one_port_all_get_different_nodes(bench: Bench) -> None:
    await bench.submit(
        job("a", 2, "1", host_ports=[8080]),
        job("b", 2, "1", host_ports=[8080]),
        job("other", 1, "1", host_ports=[8081]),
    )
    await bench.cycle()
    assert sorted(hosts(bench, "a") + hosts(bench, "b")) == ["n0", "n1", "n2", "n3"]
    assert hosts(bench, "other") == ["n0"]


async def test_work_whose_port_is_in_use_on_every_node_waits_with_that_reason(bench: Bench) -> None:
    await bench.submit(job("all", 4, "1", host_ports=[8080]), job("late", 1, "1", host_ports=[8080]))
    await bench.cycle()
    assert bench.row("late").reason is Reason.WAITING_FOR_NODES
    assert bench.row("late").message == "host port 8080/TCP is taken on every node that it may use"


async def test_a_gang_with_a_host_port_and_more_pods_than_nodes_is_unsatisfiable(bench: Bench) -> None:
    await bench.submit(job("five", 5, "1", host_ports=[8080]))
    await bench.cycle()
    assert bench.row("five").reason is Reason.UNSATISFIABLE


async def test_ports_of_foreign_pods_count_also_with_host_network(bench: Bench) -> None:
    await bench.cycle()
    bench.pods.apply(running("plain", "n0", make_pod("plain").host_ports(8080)))
    on_host = make_pod("on-host").with_("spec.hostNetwork", True)
    bench.pods.apply(
        running(
            "on-host",
            "n1",
            on_host.with_("spec.containers", [{"name": "a", "ports": [{"containerPort": 8080}]}]),
        )
    )
    bench.pods.apply(running("other", "n2", make_pod("other").host_ports(8080, protocol="UDP")))
    await bench.submit(job("two", 2, "1", host_ports=[8080]))
    await bench.cycle()
    assert hosts(bench, "two") == ["n2", "n3"]


async def test_two_foreign_pods_with_one_port_on_two_addresses_close_no_node(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.pods.apply(running(name, "n0", make_pod(name).host_ports(8080)))
    await bench.submit(job("ports", 1, "1", host_ports=[8080]), job("plain", 1, "1"))
    await bench.cycle()
    assert (hosts(bench, "ports"), hosts(bench, "plain")) == (["n1"], ["n0"])


async def test_a_reservation_waits_for_the_port_and_work_without_it_starts_first(bench: Bench) -> None:
    bench.policy = Policy.EASY
    await bench.submit(job("holds", 4, "1", "10m", host_ports=[8080]))
    await bench.cycle()
    await bench.submit(job("waits", 1, "1", "10m", host_ports=[8080]), job("ahead", 4, "1", "1m"))
    await bench.cycle()
    assert bench.ledger.reservation(bench.row("waits").id) is not None
    assert bench.row("ahead").state is State.ALLOCATED


async def test_a_refilled_graph_has_the_ports_that_are_in_use(bench: Bench) -> None:
    await bench.submit(job("a", 3, "1", host_ports=[8080]))
    await bench.cycle()
    bench.graph.invalidate()
    await bench.submit(job("b", 1, "1", host_ports=[8080]), job("c", 1, "1", host_ports=[8080]))
    await bench.cycle()
    assert hosts(bench, "b") == ["n3"]
    assert bench.row("c").state is State.PENDING


async def test_an_unused_port_is_removed_from_the_graph_when_there_are_too_many(bench: Bench) -> None:
    await bench.cycle()
    for number in range(MAX_PORTS + 1):
        work = job(f"j{number}", 1, "1", host_ports=[1000 + number], namespace=f"ns{number}")
        assert bench.port_volume_pools.limit_types([work]) == [work]
        await bench.submit(work)
        await bench.cycle()
        row = bench.row(f"j{number}")
        assert row.state is State.ALLOCATED
        if number:
            await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED)])
    assert bench.graph.rebuilds == 2
    assert len(bench.port_volume_pools.types) < MAX_PORTS


async def test_the_ports_in_the_graph_are_limited_for_each_namespace_and_in_total(bench: Bench) -> None:
    await bench.cycle()
    many = [
        job(f"a{number}", 1, "1", host_ports=[1000 + number], namespace="a")
        for number in range(MAX_PORTS_OF_NAMESPACE + 1)
    ]
    judged = bench.port_volume_pools.limit_types(many)
    assert [new.reason for new in judged] == [Reason.NONE] * MAX_PORTS_OF_NAMESPACE + [Reason.INVALID_REQUEST]
    assert judged[-1].message == (
        "Job a/a16 wants host port 1016/TCP: work of namespace a together may ask for 16 different host "
        "ports, and does: "
        "use one of those, or a Service"
    )
    everywhere = [
        job(f"n{number}", 1, "1", host_ports=[number + 1], namespace=f"n{number}")
        for number in range(MAX_PORTS + 1)
    ]
    assert [new.reason for new in bench.port_volume_pools.limit_types(everywhere)] == [
        Reason.NONE
    ] * MAX_PORTS + [Reason.INVALID_REQUEST]


def on_address(name: str, pods: int, address: str) -> NewWorkload:
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": address}]
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}, "ports": ports}
    builder = make_job(name).indexed(pods).suspended().annotation("fluxqueue/suspended-by", "webhook")
    described = describe_job(
        a_job(builder.with_("spec.template.spec.containers", [container]), uid=name), around()
    )
    assert described is not None
    return described


async def test_a_port_on_another_address_shares_the_node_and_on_all_addresses_does_not(bench: Bench) -> None:
    await bench.submit(
        on_address("one", 4, "10.0.0.1"), on_address("two", 4, "10.0.0.2"), on_address("again", 1, "10.0.0.1")
    )
    await bench.cycle()
    assert sorted(hosts(bench, "one")) == sorted(hosts(bench, "two")) == ["n0", "n1", "n2", "n3"]
    assert (
        bench.row("again").message == "host port 8080/TCP on 10.0.0.1 is taken on every node that it may use"
    )
    await bench.ledger.finish([Ending(bench.row("again").id, State.CANCELLED, Outcome.CANCELLED)])
    await bench.submit(job("all", 1, "1", host_ports=[8080]))
    await bench.cycle()
    assert bench.row("all").message == "host port 8080/TCP is taken on every node that it may use"


async def test_ports_of_foreign_pods_count_by_their_addresses(bench: Bench) -> None:
    await bench.cycle()
    port = {"containerPort": 80, "hostPort": 8080}
    for name, address in (("n0", "10.0.0.1"), ("n1", "10.0.0.2"), ("n2", "0.0.0.0")):
        container = {"name": "a", "ports": [{**port, "hostIP": address}]}
        bench.pods.apply(running(name, name, make_pod(name).with_("spec.containers", [container])))
    await bench.submit(on_address("one", 2, "10.0.0.1"))
    await bench.cycle()
    assert hosts(bench, "one") == ["n1", "n3"]
