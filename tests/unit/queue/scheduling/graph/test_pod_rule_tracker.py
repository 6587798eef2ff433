"""The tracker of placed pods: which slots count as pods, and until when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from support.builders import JobBuilder, Json, make_job
from support.queue_bench import Bench, a_machine, a_node
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.api.metadata import Namespace
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def caches() -> Caches:
    found = Caches(cast(Api, None))
    found.nodes.replace([a_node(f"n{number}") for number in range(2)])
    found.namespaces.apply(
        msgspec.convert({"metadata": {"name": "default", "uid": "uid-default"}}, Namespace)
    )
    return found


@pytest.fixture
async def bench(caches: Caches) -> AsyncIterator[Bench]:
    async with a_machine(caches=caches) as made:
        made.policy = Policy.EASY
        yield made


async def submit(
    bench: Bench,
    caches: Caches,
    name: str,
    pods: int,
    apart_from: str = "",
    *,
    app: str = "",
    cpu: str = "1",
    priority: int = 0,
    affinity: Json | None = None,
    duration: str = "",
    **term_fields: Any,
) -> None:
    """Submit a Job of pods with the label ``app=NAME``, which may keep off nodes of another app."""
    builder: JobBuilder = make_job(name).namespace("default").indexed(pods).cpu(cpu).suspended()
    builder = builder.annotation("fluxqueue/suspended-by", "webhook").with_(
        "spec.template.metadata.labels", {"app": app or name}
    )
    if priority:
        builder = builder.annotation("fluxqueue/priority", str(priority))
    if duration:
        builder = builder.annotation("fluxqueue/duration", duration)
    if apart_from:
        term = {
            "labelSelector": {"matchLabels": {"app": apart_from}},
            "topologyKey": "kubernetes.io/hostname",
            **term_fields,
        }
        affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    if affinity is not None:
        builder = builder.with_("spec.template.spec.affinity", affinity)
    found = a_job(builder, uid=name)
    caches.jobs.apply(found)
    described = describe_job(found, around())
    assert described is not None
    await bench.submit(described)


async def test_a_granted_slot_counts_as_a_pod_before_its_pod_is_bound(bench: Bench, caches: Caches) -> None:
    await submit(bench, caches, "web", 1)
    await bench.cycle()
    await submit(bench, caches, "db", 1, apart_from="web")
    await bench.cycle()
    assert (bench.row("web").hosts, bench.row("db").hosts) == ("n0", "n1")


async def test_a_slot_that_ends_counts_no_longer_although_its_workload_runs_on(
    bench: Bench, caches: Caches
) -> None:
    await bench.submit()
    await submit(bench, caches, "web", 16)
    await bench.cycle()
    row = bench.row("web")
    allocation = bench.ledger.allocation(row.id)
    assert allocation is not None
    assert {slot.node for slot in allocation.slots} == {"n0", "n1"}
    await submit(bench, caches, "db", 1, apart_from="web")
    await bench.cycle()
    assert bench.row("db").state is State.PENDING
    await bench.ledger.end_slots([(slot.jobid, slot.rank) for slot in allocation.slots if slot.node == "n1"])
    await bench.cycle()
    assert bench.row("db").hosts == "n1"


async def test_a_new_label_of_a_namespace_counts_for_rules_that_reach_by_it(
    bench: Bench, caches: Caches
) -> None:
    def label(team: str, version: str) -> None:
        document = {"name": "default", "uid": "uid-default", "resourceVersion": version}
        labelled = {"metadata": {**document, "labels": {"team": team}}}
        caches.namespaces.apply(msgspec.convert(labelled, Namespace))

    label("x", "2")
    await submit(bench, caches, "web", 12)
    await bench.cycle()
    assert bench.row("web").state is State.ALLOCATED
    of_team = {"matchLabels": {"team": "x"}}
    await submit(bench, caches, "db", 1, apart_from="web", namespaceSelector=of_team)
    await bench.cycle()
    await bench.cycle()
    assert bench.row("db").state is State.PENDING
    label("y", "3")
    await bench.cycle()
    assert bench.row("db").state is State.ALLOCATED


@pytest.mark.parametrize("alone", [True, False])
async def test_what_work_has_to_be_near_is_not_preempted_for_it(
    bench: Bench, caches: Caches, alone: bool
) -> None:
    """Once the victim was gone, nothing would be there that the work has to be near."""
    bench.preemption = Preemption.LOWER_PRIORITY
    caches.nodes.replace([a_node("n0")])
    await submit(bench, caches, "db", 4)
    await submit(bench, caches, "other", 4)
    await bench.cycle()
    rows = [bench.row(name) for name in ("db", "other")]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])
    near = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    cpu = "8" if alone else "4"
    await submit(
        bench, caches, "urgent", 1, cpu=cpu, priority=10, affinity={"podAffinity": {REQUIRED: [near]}}
    )
    await bench.cycle()
    stopped = [name for name in ("db", "other") if bench.row(name).state is State.DRAINING]
    assert stopped == ([] if alone else ["other"])


async def test_work_for_which_preemption_would_be_in_vain_keeps_none_from_others(
    bench: Bench, caches: Caches
) -> None:
    """All pods that the first has to be near would have to go for it. The next needs one of them to go."""
    bench.preemption = Preemption.LOWER_PRIORITY
    caches.nodes.replace([a_node("n0")])
    await submit(bench, caches, "db", 4)
    await submit(bench, caches, "db-too", 4, app="db")
    await bench.cycle()
    rows = [bench.row(name) for name in ("db", "db-too")]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])
    near = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    await submit(bench, caches, "near", 1, cpu="8", priority=10, affinity={"podAffinity": {REQUIRED: [near]}})
    await submit(bench, caches, "next", 1, cpu="4", priority=9, duration="30m")  # until the first starts
    for _ in range(3):
        await bench.cycle()
    states = [bench.row(name).state for name in ("db", "db-too")]
    assert states.count(State.DRAINING) == 1
