"""Cycles with work below levels of the topology: two racks of two nodes, with the matcher in process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from support.builders import make_job, make_node
from support.queue_bench import Bench, a_machine
from support.queue_builders import a_job, around

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.records import NewWorkload


def node(name: str, rack: str, version: int = 2) -> Node:
    builder = make_node(name).uid(f"uid-{name}").allocatable(cpu="8", memory="32Gi", pods="110")
    builder = builder.label("topology.kubernetes.io/rack", rack).with_(
        "metadata.resourceVersion", str(version)
    )
    return msgspec.convert(builder.build(), Node)


def job(name: str, pods: int, cpu: str, host: str = "", **topology: str) -> NewWorkload:
    """An Indexed Job; ``required_topology="rack"`` is the annotation of that name."""
    builder = (
        make_job(name).indexed(pods).cpu(cpu).suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    for key, value in topology.items():
        builder = builder.annotation(f"fluxqueue/{key.replace('_', '-')}", value)
    if host:
        builder = builder.with_("spec.template.spec.nodeSelector", {"kubernetes.io/hostname": host})
    described = describe_job(a_job(builder, uid=name), around())
    assert described is not None
    return described


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        made.nodes.replace([node(f"n{number}", f"r{number // 2}") for number in range(4)])
        yield made


def hosts(bench: Bench, name: str) -> list[str]:
    return hostlists.decode(bench.row(name).hosts)


async def test_all_pods_of_a_job_get_nodes_of_one_rack_in_order_of_ranks(bench: Bench) -> None:
    await bench.submit(job("a", 1, "8"), job("b", 2, "8", required_topology="rack"))
    await bench.cycle()
    assert (hosts(bench, "a"), hosts(bench, "b")) == (["n0"], ["n2", "n3"])


async def test_work_waits_with_the_best_rack_in_its_reason(bench: Bench) -> None:
    await bench.submit(
        job("a", 1, "8", host="n0"),
        job("b", 1, "4", host="n3"),
        job("wide", 4, "4", required_topology="rack"),
    )
    await bench.cycle()
    row = bench.row("wide")
    assert (row.state, row.reason) == (State.PENDING, Reason.WAITING_FOR_NODES)
    assert "no rack has free 4 pods: r1 has the most: 3" in row.message


async def test_what_no_rack_could_hold_is_unsatisfiable_and_larger_ones_of_its_family_too(
    bench: Bench,
) -> None:
    await bench.submit(
        job("wide", 5, "4", required_topology="rack"), job("wider", 6, "4", required_topology="rack")
    )
    await bench.cycle()
    assert [bench.row(name).reason for name in ("wide", "wider")] == [Reason.UNSATISFIABLE] * 2
    assert "no rack holds 5 pods: the largest holds 4" in bench.row("wide").message


async def test_a_rack_is_reserved_for_what_waits_and_backfill_leaves_it(bench: Bench) -> None:
    bench.policy = Policy.EASY
    await bench.submit(
        job("short", 1, "8", host="n0", duration="10m"),
        job("long", 1, "8", host="n2", duration="50m"),
        job("wide", 2, "8", required_topology="rack", duration="1h"),
        job("late", 1, "8", host="n1", duration="30m"),
        job("fits", 1, "8", host="n3", duration="30m"),
    )
    await bench.cycle()
    assert [bench.row(name).state for name in ("wide", "late", "fits")] == [
        State.PENDING,
        State.PENDING,
        State.ALLOCATED,
    ]
    assert "2 nodes are reserved for it from 2026-11-21T08:10:00Z" in bench.row("wide").message


async def test_whole_nodes_stay_alone_when_the_graph_is_filled_again(bench: Bench) -> None:
    await bench.submit(job("alone", 4, "1", exclusive="true", pods_per_node="2"))
    await bench.cycle()
    assert hosts(bench, "alone") == ["n0", "n0", "n1", "n1"]
    bench.graph.invalidate()
    await bench.submit(*(job(f"small-{number}", 1, "8") for number in range(3)))
    await bench.cycle()
    assert bench.graph.rebuilds == 2
    assert [bench.row(f"small-{number}").state for number in range(3)] == [
        State.ALLOCATED,
        State.ALLOCATED,
        State.PENDING,
    ]


async def test_a_node_that_gets_another_label_counts_in_its_new_rack(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", required_topology="rack"))
    await bench.cycle()
    assert bench.row("wide").reason is Reason.UNSATISFIABLE
    bench.nodes.replace([node(f"n{number}", "r0", 3) for number in range(4)])
    await bench.cycle()
    assert hosts(bench, "wide") == ["n0", "n1", "n2"]
