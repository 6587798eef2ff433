"""Pods that are matched alone although they belong to a group that has nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_node, make_pod
from support.controller_bench import managed_caches, subscribed
from support.device_objects import a_class, a_template, request, resource_claims
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger
from support.work_counts import assert_linear

from fluxqueue.api import names
from fluxqueue.api.devices import DeviceClass, ResourceClaimTemplate
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake import object_reader
from fluxqueue.queue.intake.changes import IntakeChanges
from fluxqueue.queue.intake.group_reader import GroupReader
from fluxqueue.queue.intake.namespace_budgets import NO_BUDGET, NamespaceBudgets
from fluxqueue.queue.intake.object_reader import ObjectReader
from fluxqueue.queue.model.groups import POD_GROUP, GroupKey
from fluxqueue.queue.model.job_slots import JobSlots
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of, takes_whole_nodes
from fluxqueue.queue.model.moldable import GROWTH_PRIORITY
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode
from fluxqueue.queue.release.blockers import ReleaseBlockers

RACK = "topology.kubernetes.io/rack"


@pytest.fixture
def ledger() -> RecordingLedger:
    return RecordingLedger()


@pytest.fixture
def caches() -> Caches:
    return managed_caches(MemoryApi())


def a_reader(caches: Caches, ledger: RecordingLedger) -> ObjectReader:
    budgets = subscribed(NamespaceBudgets(caches, ledger, NO_BUDGET, lambda _: None), caches, ledger)
    return subscribed(
        ObjectReader(
            caches,
            ledger,
            GroupReader(MemoryApi().api, caches, ledger),
            ReleaseBlockers(),
            budgets,
            lambda _: None,
        ),
        caches,
        ledger,
    )


def member(name: str, **annotations: str) -> PodBuilder:
    pod = (
        make_pod(name)
        .gate("fluxqueue")
        .label("fluxqueue/pod-group", "mpi")
        .annotation("fluxqueue/pod-group-size", "2")
    )
    for key, text in annotations.items():
        pod = pod.annotation(f"fluxqueue/{key.replace('_', '-')}", text)
    return pod


def replacement(
    caches: Caches, ledger: RecordingLedger, topology: TopologyRequest, **annotations: str
) -> NewWorkload:
    """Describe a pod of a group of two that runs on n1, in the rack r1, and whose other node is gone."""
    text = jobspec_of(
        "default/mpi",
        [SizedPods({"cpu": Decimal(1)}, 2)],
        duration_s=60,
        placement=PlacementRules(topology=topology),
    )
    group = a_workload(
        "mpi", kind=POD_GROUP, release_mode=ReleaseMode.GROUP, pods=2, jobspec=text, state=State.RUNNING
    )
    ledger.put(group, an_allocation(["n1", "gone"], pods=["p0", "p1"]))
    caches.nodes.apply(msgspec.convert(make_node("n1").label(RACK, "r1").build(), Node))
    caches.pods.apply(a_pod(member("p0").on_node("n1"), uid="p0"))
    caches.pods.apply(a_pod(member("p2", **annotations).cpu("1"), uid="p2"))
    reader = a_reader(caches, ledger)
    found = reader.describe("p2", None)
    assert found is not None
    return found


def test_one_that_claims_devices_gets_a_slot_of_its_group(ledger: RecordingLedger) -> None:
    caches = managed_caches(MemoryApi(), devices=True)
    caches.devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    caches.devices.templates.apply(
        msgspec.convert(a_template("gpu", request(), namespace="default"), ResourceClaimTemplate)
    )
    pods = [
        a_pod(member(name).cpu("1").with_("spec.resourceClaims", resource_claims("gpu")), uid=name)
        for name in ("p0", "p1")
    ]
    for pod in pods:
        caches.pods.apply(pod)
    caches.nodes.apply(msgspec.convert(make_node("n0").build(), Node))
    reader = GroupReader(MemoryApi().api, caches, ledger)
    key = GroupKey("default", "mpi")
    group = reader.gather(key, None)
    assert group is not None
    jobspec = reader.describe(key, group, None).jobspec
    ledger.put(
        a_workload(
            "mpi",
            kind=POD_GROUP,
            release_mode=ReleaseMode.GROUP,
            pods=2,
            jobspec=jobspec,
            state=State.ALLOCATED,
        ),
        an_allocation(["n0", "n0"]),
    )
    assert a_reader(caches, ledger).describe("p0", None) is None


def system(found: NewWorkload) -> Any:
    return json.loads(found.jobspec)["attributes"]["system"]


def test_it_stays_below_the_vertex_of_a_required_level(caches: Caches, ledger: RecordingLedger) -> None:
    found = replacement(caches, ledger, TopologyRequest(required="rack"), required_topology="rack")
    assert f"{RACK}=r1" in json.dumps(system(found)["constraints"])
    assert json.loads(found.jobspec)["resources"][0]["type"] == "slot"


def test_it_gets_a_whole_node_if_its_group_is_exclusive(caches: Caches, ledger: RecordingLedger) -> None:
    found = replacement(caches, ledger, TopologyRequest(exclusive=True), exclusive="true")
    assert takes_whole_nodes(found.jobspec)


def test_slices_do_not_bind_it(caches: Caches, ledger: RecordingLedger) -> None:
    found = replacement(
        caches, ledger, TopologyRequest(slice_level="rack", slice_size=2), topology_slice="2@rack"
    )
    assert (found.reason, found.pods) == (Reason.NONE, 1)


def grown_pod(
    caches: Caches, ledger: RecordingLedger, parallelism: int, slots: int = 2
) -> NewWorkload | None:
    """Describe a further pod of a Job of eight that was started with two."""
    jobspec = jobspec_of("default/mpi", [SizedPods({"cpu": Decimal(1)}, 8)], duration_s=600, min_pods=2)
    started = (
        make_job("mpi")
        .indexed(8)
        .with_("spec.parallelism", parallelism)
        .annotation(names.STARTED_PODS_ANNOTATION, "2")
    )
    caches.jobs.apply(a_job(started.with_("spec.suspend", False), uid="uid-of-mpi"))
    workload = a_workload(
        "mpi",
        uid="uid-of-mpi",
        jobspec=jobspec,
        pods=8,
        duration_s=600,
        state=State.RUNNING,
        hosts="n[1-2]",
        priority=5,
    )
    ledger.put(
        workload,
        replace(an_allocation(["n1", "n2"], pods=["p0", "p1"]), end=EPOCH + timedelta(seconds=2_400)),
    )
    for name in ("n1", "n2"):
        caches.nodes.apply(msgspec.convert(make_node(name).build(), Node))
    for number in range(slots):
        caches.pods.apply(
            a_pod(make_pod(f"p{number}").owned_by("Job", "mpi").index(number).on_node("n1"), uid=f"p{number}")
        )
    caches.pods.apply(
        a_pod(make_pod("p2").owned_by("Job", "mpi").index(2).gate("fluxqueue").cpu("1"), uid="p2")
    )
    return a_reader(caches, ledger).describe("p2", None)


def test_a_pod_by_which_a_job_grows_comes_behind_all_other_work(
    caches: Caches, ledger: RecordingLedger
) -> None:
    found = grown_pod(caches, ledger, parallelism=3)
    assert found is not None
    assert (found.priority, found.duration_s, found.pods) == (GROWTH_PRIORITY, 2_400, 1)


def test_a_later_pod_of_a_small_start_gets_the_slot_that_became_free(
    caches: Caches, ledger: RecordingLedger
) -> None:
    assert grown_pod(caches, ledger, parallelism=2, slots=1) is None


@pytest.mark.parametrize(
    ("state", "gate", "why"),
    [
        (State.PENDING, "fluxqueue", "does not start alone any more: its Job does not run now"),
        (State.DRAINING, "fluxqueue", "does not start alone any more: its Job does not run now"),
        (State.RUNNING, "fluxqueue", "does not start alone any more: its Job has a place for it"),
        (State.RUNNING, "", "left the queue: it opted out, or runs without us"),
    ],
)
def test_a_pod_by_which_a_job_does_not_grow_any_more_says_why_it_ends(
    state: State, gate: str, why: str, caches: Caches, ledger: RecordingLedger
) -> None:
    ledger.put(a_workload("mpi", uid="uid-of-mpi", pods=8, state=state))
    pod = make_pod("p2").owned_by("Job", "mpi").index(2).cpu("1")
    caches.pods.apply(a_pod(pod.gate(gate) if gate else pod, uid="p2"))
    changes = IntakeChanges()
    a_reader(caches, ledger).read("p2", a_workload("p2", uid="p2", kind="Pod"), changes)
    (ending,) = changes.endings
    assert (ending.state, ending.message) == (State.CANCELLED, f"Pod default/p2 {why}")


def test_the_slots_of_a_job_are_shared_out_once_for_the_pods_read_together(
    caches: Caches, ledger: RecordingLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[JobSlots] = []

    def make(*arguments: Any) -> JobSlots:
        made.append(JobSlots(*arguments))
        return made[-1]

    monkeypatch.setattr(object_reader, "JobSlots", make)
    job = make_job("loose").pods(30, 30).suspended(False)
    caches.jobs.apply(a_job(job, uid="uid-of-loose"))
    for number in range(30):
        pod = make_pod(f"p{number:02}").uid(f"p{number:02}").owned_by("Job", "loose").gate("fluxqueue")
        caches.pods.apply(a_pod(pod, uid=f"p{number:02}"))
    row = a_workload(
        "loose", uid="uid-of-loose", state=State.ALLOCATED, release_mode=ReleaseMode.GATE, pods=30
    )
    ledger.put(row, an_allocation(["n0"] * 29))
    caches.nodes.apply(msgspec.convert(make_node("n0").build(), Node))
    reader = a_reader(caches, ledger)
    for batch in (1, 2):
        reader.begin()
        described = [reader.describe(f"p{number:02}", None) for number in range(30)]
        assert [each.uid for each in described if each is not None] == ["p29"]
        assert len(made) == batch


def newcomers(count: int, *, required: str = "") -> Callable[[], object]:
    """Return the reading of as many pods of a group that runs, when all its nodes are closed."""
    ledger, caches = RecordingLedger(), managed_caches(MemoryApi())
    placement = PlacementRules(topology=TopologyRequest(required=required) if required else TopologyRequest())
    text = jobspec_of(
        "default/mpi", [SizedPods({"cpu": Decimal(1)}, count)], duration_s=60, placement=placement
    )
    group = a_workload(
        "mpi", kind=POD_GROUP, release_mode=ReleaseMode.GROUP, pods=count, jobspec=text, state=State.RUNNING
    )
    ledger.put(group, an_allocation([f"n{number}" for number in range(count)]))
    pods = [a_pod(member(f"p{number}").cpu("1"), uid=f"p{number}") for number in range(count)]
    for pod in pods:
        caches.pods.apply(pod)
    reader = a_reader(caches, ledger)

    def read() -> None:
        for pod in pods:
            assert reader.describe(pod.metadata.uid, None) is not None

    return read


def test_reading_many_pods_of_a_group_costs_in_proportion_to_their_number() -> None:
    assert_linear(newcomers)


def test_the_nodes_beside_many_pods_are_found_once() -> None:
    assert_linear(lambda count: newcomers(count, required="rack"))


def test_a_pod_that_was_alone_and_is_one_of_a_group_now_did_not_opt_out(
    caches: Caches, ledger: RecordingLedger
) -> None:
    ledger.put(
        a_workload("mpi", kind=POD_GROUP, uid="group-p4", release_mode=ReleaseMode.GROUP, pods=2), None
    )
    for name in ("p4", "p5"):
        caches.pods.apply(a_pod(member(name), uid=name))
    row = a_workload("p4", kind="Pod", uid="p4", release_mode=ReleaseMode.POD, reason=Reason.INVALID_REQUEST)
    ledger.put(row, None)
    reader = a_reader(caches, ledger)
    changes = IntakeChanges()
    reader.read("p4", row, changes)
    (ending,) = changes.endings
    assert ending.message == "Pod default/p4 does not start alone any more: it is one of a group now"


@pytest.mark.parametrize(("reason", "alone"), [(Reason.INVALID_REQUEST, False), (Reason.NONE, True)])
def test_a_pod_beyond_its_group_does_not_start_alone_when_that_has_ended(
    reason: Reason, alone: bool, caches: Caches, ledger: RecordingLedger
) -> None:
    caches.pods.apply(a_pod(member("p4").cpu("1"), uid="p4"))
    row = a_workload("p4", kind="Pod", uid="p4", release_mode=ReleaseMode.POD, reason=reason)
    ledger.put(row, None)
    changes = IntakeChanges()
    a_reader(caches, ledger).read("p4", row, changes)
    assert [each.uid for each in changes.described] == (["p4"] if alone else [])
    assert [each.message for each in changes.endings] == (
        [] if alone else ["Pod default/p4 does not start alone any more: it is one of a group now"]
    )
