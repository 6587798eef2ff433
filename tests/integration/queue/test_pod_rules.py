"""Work with required rules about other pods, matched cycle by cycle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from support.builders import Builder, JobBuilder, PodBuilder, make_job, make_node, make_pod
from support.queue_bench import Bench, a_leader, job
from support.queue_builders import a_job, a_pod, around

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.store import Store

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PLACEMENT = "spec.template.spec.affinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def caches() -> Caches:
    """Four nodes of 8 cores: n0 and n1 in zone a, n2 and n3 in zone b."""
    filled = Caches(cast(Api, None))
    for number in range(4):
        builder = (
            make_node(f"n{number}").uid(f"uid-n{number}").allocatable(cpu="8", memory="32Gi", pods="110")
        )
        builder = builder.label(HOST, f"n{number}").label(ZONE, "ab"[number // 2])
        filled.nodes.apply(msgspec.convert(builder.build(), Node))
    filled.namespaces.apply(
        msgspec.convert({"metadata": {"name": "default", "uid": "uid-default"}}, Namespace)
    )
    return filled


@pytest.fixture
async def bench(store: Store, caches: Caches) -> AsyncIterator[Bench]:
    matcher = LocalFluxion()
    async with a_leader(store, caches.nodes, matcher, caches=caches) as made:
        made.policy = Policy.EASY
        yield made
    await matcher.close()


def rule(kind: str, app: str, topology: str) -> dict[str, Any]:
    return {kind: {REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}]}}


def spread(app: str, topology: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": app}}
    return [
        {
            "maxSkew": 1,
            "topologyKey": topology,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
    ]


def pod(name: str, app: str, affinity: Any = None, cpu: str = "1") -> PodBuilder:
    builder = make_pod(name).namespace("default").cpu(cpu).label("app", app)
    return builder.with_("spec.affinity", affinity) if affinity is not None else builder


async def submit_pods(bench: Bench, caches: Caches, *builders: PodBuilder) -> None:
    """Create gated pods and submit them."""
    for builder in builders:
        gated_pod = a_pod(builder.gate("fluxqueue"), uid=builder.build()["metadata"]["name"])
        caches.pods.apply(gated_pod)
        described = describe_pod(gated_pod, around())
        assert described is not None
        assert described.reason is Reason.NONE, described.message
        await bench.submit(described)


async def submit_job(bench: Bench, caches: Caches, builder: JobBuilder) -> None:
    builder = builder.suspended().annotation("fluxqueue/suspended-by", "webhook")
    read_job = a_job(builder, uid=builder.build()["metadata"]["name"])
    caches.jobs.apply(read_job)
    described = describe_job(read_job, around())
    assert described is not None
    assert described.reason is Reason.NONE, described.message
    await bench.submit(described)


def bound(caches: Caches, builder: Builder, node: str, version: str = "20") -> None:
    """Bind a pod to a node; its uid is its name."""
    name = builder.build()["metadata"]["name"]
    document = (
        builder.uid(name)
        .with_("spec.nodeName", node)
        .with_("spec.schedulingGates", [])
        .with_("metadata.resourceVersion", version)
    )
    caches.pods.apply(msgspec.convert(document.build(), Pod))


def hosts(bench: Bench, name: str) -> list[str]:
    return sorted(hostlists.decode(bench.row(name).hosts))


async def test_pods_with_anti_affinity_get_a_node_each_in_one_cycle_and_one_more_waits(
    bench: Bench, caches: Caches
) -> None:
    apart = rule("podAntiAffinity", "web", HOST)
    await submit_pods(bench, caches, *(pod(f"web-{number}", "web", apart) for number in range(5)))
    await bench.cycle()
    assert sorted(node for number in range(4) for node in hosts(bench, f"web-{number}")) == [
        "n0",
        "n1",
        "n2",
        "n3",
    ]
    last = bench.row("web-4")
    assert (last.state, last.reason) == (State.PENDING, Reason.WAITING_FOR_NODES)
    assert "its rules about other pods leave no place for it as pods lie now" in last.message


async def test_work_that_waits_for_its_rules_starts_when_the_blocking_pod_is_deleted(
    bench: Bench, caches: Caches
) -> None:
    for number in range(4):
        bound(caches, pod(f"old-{number}", "old"), f"n{number}")
    await submit_pods(bench, caches, pod("new", "new", rule("podAntiAffinity", "old", HOST)))
    await bench.cycle()
    assert bench.row("new").state is State.PENDING
    bench.asked.clear()
    caches.pods.remove(next(each for each in caches.pods.list() if each.metadata.name == "old-2"))
    await bench.cycle()
    assert hosts(bench, "new") == ["n2"]


async def test_anti_affinity_also_applies_to_later_pods_without_rules(bench: Bench, caches: Caches) -> None:
    for number in range(4):
        bound(caches, pod(f"lonely-{number}", "lonely", rule("podAntiAffinity", "noisy", HOST)), f"n{number}")
    await submit_pods(bench, caches, pod("first", "noisy"), pod("second", "quiet"))
    await bench.cycle()
    assert bench.row("first").state is State.PENDING
    assert "required podAntiAffinity of other pods" in bench.row("first").message
    assert bench.row("second").state is State.ALLOCATED, (
        "a pod of the same size that nobody wants to be apart from"
    )


async def test_two_pods_of_one_cycle_do_not_contradict_each_other(bench: Bench, caches: Caches) -> None:
    await submit_pods(
        bench, caches, pod("lonely", "lonely", rule("podAntiAffinity", "noisy", ZONE)), pod("noisy", "noisy")
    )
    await bench.cycle()
    assert hosts(bench, "lonely") == ["n0"]
    assert hosts(bench, "noisy") == ["n2"]


async def test_a_pod_with_affinity_waits_for_the_other_pod_and_gets_its_node(
    bench: Bench, caches: Caches
) -> None:
    await submit_pods(bench, caches, pod("client", "client", rule("podAffinity", "server", ZONE)))
    await bench.cycle()
    assert "no pod it wants to be near is placed" in bench.row("client").message
    bound(caches, pod("server", "server"), "n3")
    await bench.cycle()
    assert hosts(bench, "client") == ["n2"]


async def test_pods_with_affinity_to_each_other_follow_the_first_one(bench: Bench, caches: Caches) -> None:
    near = rule("podAffinity", "web", ZONE)
    await submit_pods(
        bench,
        caches,
        pod("web-0", "web", near, cpu="6"),
        pod("web-1", "web", near, cpu="6"),
        pod("web-2", "web", near, cpu="6"),
    )
    await bench.cycle()
    assert [hosts(bench, f"web-{number}") for number in range(2)] == [["n0"], ["n1"]]
    assert bench.row("web-2").state is State.PENDING, "its zone is full, and it may not go into the other"


async def test_single_pods_are_spread_as_granted_and_a_bound_pod_counts_once(
    bench: Bench, caches: Caches
) -> None:
    def web(number: int) -> PodBuilder:
        return pod(f"web-{number}", "web").with_("spec.topologySpreadConstraints", spread("web", ZONE))

    await submit_pods(bench, caches, web(0), web(1), web(2))
    await bench.cycle()
    assert [hosts(bench, f"web-{number}") for number in range(3)] == [["n0"], ["n2"], ["n0"]]
    for number in range(3):
        bound(caches, web(number), hosts(bench, f"web-{number}")[0])
    await submit_pods(bench, caches, web(3), web(4))
    await bench.cycle()
    assert [hosts(bench, f"web-{number}") for number in (3, 4)] == [["n2"], ["n0"]]


async def test_a_gang_is_spread_evenly_together_with_existing_pods(bench: Bench, caches: Caches) -> None:
    for number in range(2):
        bound(caches, pod(f"there-{number}", "md"), "n0")
    gang = make_job("md").namespace("default").indexed(6).cpu("2").pod_label("app", "md")
    await submit_job(
        bench, caches, gang.with_("spec.template.spec.topologySpreadConstraints", spread("md", ZONE))
    )
    await bench.cycle()
    zones = [caches.nodes.get("", node).metadata.label(ZONE) for node in hosts(bench, "md")]  # type: ignore[union-attr]
    assert (zones.count("a"), zones.count("b")) == (2, 4)


async def test_a_gang_with_affinity_is_in_one_zone(bench: Bench, caches: Caches) -> None:
    await bench.submit(job("fills", 1, "6"))
    await bench.cycle()
    gang = make_job("md").namespace("default").indexed(4).cpu("4").pod_label("app", "md")
    await submit_job(bench, caches, gang.with_(PLACEMENT, rule("podAffinity", "md", ZONE)))
    await bench.cycle()
    assert hosts(bench, "md") == ["n2", "n2", "n3", "n3"], "zone a has room for two of them only"


async def test_a_gang_with_anti_affinity_by_zone_has_a_zone_for_each_pod(
    bench: Bench, caches: Caches
) -> None:
    gang = make_job("md").namespace("default").indexed(2).cpu("1").pod_label("app", "md")
    await submit_job(bench, caches, gang.with_(PLACEMENT, rule("podAntiAffinity", "md", ZONE)))
    await bench.cycle()
    assert hosts(bench, "md") == ["n0", "n2"]


async def test_a_reservation_ends_when_the_rules_no_longer_allow_its_nodes(
    bench: Bench, caches: Caches
) -> None:
    await bench.submit(*(job(f"runs-{number}", 1, "8", duration=f"{number + 1}h") for number in range(4)))
    await bench.cycle()
    await submit_pods(bench, caches, pod("picky", "picky", rule("podAntiAffinity", "old", HOST), cpu="8"))
    await bench.cycle()
    (reserved,) = bench.ledger.reservations()
    assert reserved.shares[0].node == "n0"
    bound(caches, pod("old", "old", cpu="0"), "n0")
    await bench.cycle()
    (reserved,) = bench.ledger.reservations()
    assert reserved.shares[0].node == "n1"
    assert "rules about other pods do not admit node n0 any more" in reserved.cause


async def test_work_that_waits_for_its_rules_does_not_block_a_strict_queue(
    bench: Bench, caches: Caches
) -> None:
    bench.policy = Policy.FCFS
    await submit_pods(bench, caches, pod("client", "client", rule("podAffinity", "nobody", ZONE)))
    await bench.submit(job("behind", 1, "1"))
    await bench.cycle()
    assert bench.row("client").state is State.PENDING
    assert bench.row("behind").state is State.ALLOCATED


async def test_a_freed_slot_no_longer_counts_for_rules(bench: Bench, caches: Caches) -> None:
    apart = rule("podAntiAffinity", "web", ZONE)
    await submit_pods(bench, caches, *(pod(f"web-{number}", "web", apart) for number in range(3)))
    await bench.cycle()
    assert bench.row("web-2").state is State.PENDING
    (gone,) = [row for row in bench.ledger.all() if row.name == "web-0"]
    caches.pods.remove(next(each for each in caches.pods.list() if each.metadata.name == "web-0"))
    await bench.cycle()
    assert bench.row("web-2").state is State.PENDING, "its slot is not free yet"
    await bench.ledger.finish([Ending(gone.id, State.CANCELLED, Outcome.CANCELLED, "the pod was deleted")])
    await bench.cycle()
    assert hosts(bench, "web-2") == ["n0"]


async def test_a_pod_that_a_growing_job_added_is_matched_apart_from_its_siblings(
    bench: Bench, caches: Caches
) -> None:
    apart = rule("podAntiAffinity", "md", HOST)
    await submit_job(
        bench,
        caches,
        make_job("md")
        .namespace("default")
        .indexed(3)
        .cpu("1")
        .pod_label("app", "md")
        .with_(PLACEMENT, apart),
    )
    await bench.cycle()
    for number, node in enumerate(hosts(bench, "md")[:2]):
        bound(caches, pod(f"md-{number}", "md", apart).owned_by("Job", "md"), node)
    grown = a_pod(pod("md-3", "md", apart).owned_by("Job", "md").gate("fluxqueue"), uid="md-3")
    caches.pods.apply(grown)
    described = describe_pod(grown, around(), job=bench.row("md"))
    assert described is not None
    await bench.submit(described)
    await bench.cycle()
    assert hosts(bench, "md") == ["n0", "n1", "n2"]
    assert hosts(bench, "md-3") == ["n3"], (
        "two siblings are bound, and the place of the third is still to be taken"
    )


async def test_no_work_is_preempted_for_work_that_waits_for_its_rules(bench: Bench, caches: Caches) -> None:
    bench.preemption = Preemption.LOWER_PRIORITY
    await bench.submit(job("low", 4, "8", "1h"))
    await bench.cycle()
    low = bench.row("low")
    assert low.jobid is not None
    await bench.ledger.mark_released([low.jobid])
    await bench.ledger.mark_started([low.id])
    near = pod("client", "client", rule("podAffinity", "nobody", ZONE)).annotation("fluxqueue/priority", "10")
    await submit_pods(bench, caches, near)
    await bench.cycle()
    await bench.cycle()
    assert bench.row("low").state is State.RUNNING


async def test_a_refilled_graph_has_no_reservation_that_rules_now_forbid(
    bench: Bench, caches: Caches
) -> None:
    await bench.submit(*(job(f"runs-{number}", 1, "8", duration=f"{number + 1}h") for number in range(4)))
    await bench.cycle()
    await submit_pods(bench, caches, pod("picky", "picky", rule("podAntiAffinity", "old", HOST), cpu="8"))
    await bench.cycle()
    bound(caches, pod("old", "old", cpu="0"), "n0")
    bench.graph.invalidate()
    await bench.cycle()
    (reserved,) = bench.ledger.reservations()
    assert reserved.shares[0].node == "n1"
