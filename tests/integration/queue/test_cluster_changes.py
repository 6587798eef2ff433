"""After any change of nodes the next cycle corrects the graph, and running work continues.
Failure modes are those of `docs/reference/failure-modes.md`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from support.builders import NodeBuilder, make_node, make_pod
from support.queue_bench import Bench, a_node, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.graph.nodes import NodeRules
from fluxqueue.fluxion.messages import NodeUse
from fluxqueue.kube.events import Severity, Subject
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.nodes import NodeReader


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


def a_changed(builder: NodeBuilder, name: str = "n0") -> Node:
    return msgspec.convert(builder.uid(f"uid-{name}").with_("metadata.resourceVersion", "2").build(), Node)


async def in_graph(bench: Bench, name: str) -> NodeUse | None:
    stat = await bench.fluxion.stat(call=bench.graph.call(), per_node=True)
    return next((use for use in stat.node_use if use.node == name), None)


@pytest.mark.parametrize(
    ("changed", "shows"),
    [
        pytest.param(make_node("n0").cordoned(), lambda use: not use.up, id="cordoned"),
        pytest.param(make_node("n0").not_ready(), lambda use: not use.up, id="NotReady"),
        pytest.param(
            make_node("n0").with_("status.conditions", []), lambda use: not use.up, id="never reported"
        ),
        pytest.param(make_node("n0", cpu="16"), lambda use: use.total["cpu"] == 16_000, id="larger"),
        pytest.param(
            make_node("n0", cpu="4"), lambda use: use.total["cpu"] == 4_000, id="smaller than what runs on it"
        ),
        pytest.param(
            make_node("n0").allocatable(**{"nvidia.com/gpu": "4"}),
            lambda use: use.total["nvidia.com:gpu"] == 4,
            id="with gpus",
        ),
    ],
)
async def test_fm37_a_changed_node_changes_in_the_graph_and_its_job_continues(
    changed: NodeBuilder, shows: Callable[[NodeUse], bool], bench: Bench
) -> None:
    await bench.submit(job("runs", 4, "8"))
    await bench.cycle()
    held = await bench.held()
    bench.nodes.apply(a_changed(changed))
    await bench.cycle()
    use = await in_graph(bench, "n0")
    assert use is not None
    assert shows(use)
    assert await bench.held() == held
    assert bench.row("runs").state is State.ALLOCATED


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            make_node("n0").label("kubernetes.io/hostname", "n0").label("disk", "ssd"), id="relabelled"
        ),
        pytest.param(make_node("n0").taint("dedicated", "NoSchedule", "x"), id="tainted"),
    ],
)
async def test_fm37_changed_labels_and_taints_change_what_fits(changed: NodeBuilder, bench: Bench) -> None:
    await bench.cycle()
    bench.nodes.apply(a_changed(changed))
    await bench.cycle()
    version = bench.graph.version
    bench.nodes.apply(a_node("n0"))
    await bench.cycle()
    assert bench.graph.version == version + 1


async def test_work_waits_while_all_nodes_have_pressure_and_starts_afterwards(bench: Bench) -> None:
    disk = PRESSURES["DiskPressure"]
    for number in range(4):
        bench.nodes.apply(a_changed(make_node(f"n{number}").taint(disk.key, disk.effect), f"n{number}"))
    tolerant = {"key": disk.key, "operator": "Exists"}
    await bench.submit(job("bears-it", 1, "1", tolerations=[tolerant]), job("waits", 1, "1"))
    await bench.cycle()
    assert bench.row("waits").reason is Reason.WAITING_FOR_NODES, "it could never start only if that lasted"
    assert "without the taint node.kubernetes.io/disk-pressure" in bench.row("waits").message
    assert bench.row("bears-it").state is State.ALLOCATED
    bench.nodes.apply(a_node("n2"))
    await bench.cycle()
    allocation = bench.ledger.allocation(bench.row("waits").id)
    assert allocation is not None
    assert [slot.node for slot in allocation.slots] == ["n2"]


async def test_fm37_a_node_that_comes_back_holds_its_allocations_once(bench: Bench) -> None:
    await bench.submit(job("runs", 4, "8"))
    await bench.cycle()
    bench.nodes.remove(a_node("n3"))
    await bench.cycle()
    assert await in_graph(bench, "n3") is None
    bench.nodes.apply(a_node("n3"))
    await bench.submit(job("next", 1, "1"))
    await bench.cycle()
    use = await in_graph(bench, "n3")
    assert use is not None
    assert use.used["cpu"] == 8_000
    assert bench.row("next").state is State.PENDING


async def test_fm29_a_graph_lost_while_a_node_of_a_job_is_gone_is_filled(bench: Bench) -> None:
    await bench.submit(job("runs", 4, "8"))
    await bench.cycle()
    bench.nodes.remove(a_node("n3"))
    bench.graph.invalidate()
    await bench.cycle()
    bench.nodes.apply(a_node("n3"))
    await bench.submit(job("next", 1, "1"))
    await bench.cycle()
    assert bench.row("next").state is State.PENDING


async def test_fm27_no_node_takes_more_pods_than_it_allows(bench: Bench, nodes: ObjectCache[Node]) -> None:
    nodes.replace([a_changed(make_node("n0", pods="2"))])
    await bench.submit(job("two", 2, "10m"), job("third", 1, "10m"))
    await bench.cycle()
    assert (bench.row("two").state, bench.row("third").state) == (State.ALLOCATED, State.PENDING)


async def test_a_foreign_pod_bound_before_its_node_is_known_counts_with_the_node(bench: Bench) -> None:
    await bench.cycle()
    pod = make_pod("early").uid("early").on_node("late").phase("Running").cpu("8")
    bench.pods.apply(msgspec.convert(pod.with_("metadata.resourceVersion", "1").build(), Pod))
    await bench.cycle()
    bench.nodes.apply(a_node("late"))
    await bench.cycle()
    use = await in_graph(bench, "late")
    assert use is not None
    assert use.used["cpu"] == 8_000


async def test_a_foreign_pod_that_is_resized_in_place_counts_with_its_new_size(bench: Bench) -> None:
    running = make_pod("foreign").uid("foreign").on_node("n0").phase("Running")
    for version, cpu in enumerate(("2", "6", "1"), start=1):
        bench.pods.apply(
            msgspec.convert(running.cpu(cpu).with_("metadata.resourceVersion", str(version)).build(), Pod)
        )
        await bench.cycle()
        use = await in_graph(bench, "n0")
        assert use is not None
        assert use.used["cpu"] == int(cpu) * 1_000


def test_a_node_with_invalid_quantities_is_down_and_reported_once() -> None:
    events: list[tuple[str, str, str]] = []

    class EventRecorder:
        def record(
            self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL
        ) -> None:
            events.append((subject.name, reason, message))

    read = NodeReader(NodeRules(), EventRecorder())
    broken = a_changed(make_node("n0").allocatable(cpu="lots", memory="32Gi", pods="110"))
    assert [read(broken).down, read(broken).down, read(a_node("n1")).down] == [True, True, False]
    ((name, reason, message),) = events
    assert (name, reason) == ("n0", "InvalidNode")
    assert "its allocatable cpu cannot be used" in message
    assert read(a_node("n0")).down is False
    assert read(broken).down
    assert len(events) == 2
