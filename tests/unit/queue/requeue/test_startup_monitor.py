"""What the startup monitor finds in one check, and what it has done about it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from support.builders import JobBuilder, PodBuilder, make_job, make_node, make_pod
from support.controller_bench import TriggerLog, until
from support.device_objects import a_class, a_slice, a_template, resource_claims
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.devices import DeviceClass, ResourceClaimTemplate, ResourceSlice
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import (
    FluxionJobId,
    ReleaseMode,
    SlotState,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue import node_losses, start_observations
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.pod_refusals import PodRefusals
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.requeue.start_observations import StartObservations
from fluxqueue.queue.requeue.startup_monitor import StartupMonitor

UNSEEN = make_job("mpi").indexed(2).uid("uid-of-mpi").suspended(False).label("fluxqueue/jobid", "7")
JOB = UNSEEN.with_("status.startTime", "2026-01-01T00:00:00Z")


def pod(name: str, node: str = "") -> PodBuilder:
    builder = make_pod(name).uid(name).owned_by("Job", "mpi").annotation("fluxqueue/allocation", "7")
    return builder.on_node(node).phase("Running") if node else builder


class _Requeuer:
    """Notes what is evicted."""

    def __init__(self) -> None:
        self.evictions: list[Eviction] = []
        self.evicted_pods: list[tuple[str, list[str]]] = []
        self.groups: list[tuple[Eviction, list[str]]] = []
        self.graces: dict[WorkloadId, str] = {}
        self.pods = self

    async def evict(self, evicted: Sequence[Any], message: str | None = None) -> None:
        if message is None:
            self.evictions += evicted
        else:
            self.evicted_pods.append((message, [pod.metadata.name for pod in cast(Sequence[Pod], evicted)]))

    async def end_graces(self, causes: Mapping[WorkloadId, str]) -> None:
        self.graces |= causes

    def schedule(self) -> None: ...

    async def evict_group(self, eviction: Eviction, pods: Sequence[Pod]) -> None:
        self.groups.append((eviction, [pod.metadata.name for pod in pods]))


class Bench:
    """A Job that was released 301 seconds ago, onto nodes n0 and n1, with a start timeout of 300 s."""

    def __init__(
        self,
        *pods: PodBuilder,
        job: JobBuilder = JOB,
        lost_s: float = 3600.0,
        timeout_s: float = 300.0,
        **changes: Any,
    ) -> None:
        settings = {
            "state": State.ALLOCATED,
            "pods": 2,
            "jobid": 7,
            "release_mode": ReleaseMode.GATE,
            **changes,
        }
        self.row = a_workload("mpi", uid="uid-of-mpi", **settings)
        allocation = an_allocation(["n0", "n1"], states=[SlotState.TAKEN] * 2, pods=["mpi-0", "mpi-1"])
        self.ledger = RecordingLedger((self.row, allocation))
        self.ledger.now = EPOCH + timedelta(seconds=301)
        self.server, self.requeuer = MemoryApi(), _Requeuer()
        self.caches = Caches(self.server.api)
        backoffs = JobBackoffs(self.caches, self.ledger.clock)
        self.refusals = PodRefusals(self.ledger, TriggerLog().trigger, backoffs)
        self.gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.monitor = StartupMonitor(
            self.caches,
            self.ledger,
            cast(Requeuer, self.requeuer),
            self.refusals,
            self.gates,
            backoffs,
            start_timeout_s=timeout_s,
            node_lost_s=lost_s,
        )
        subscribe(self.caches, self.ledger, self.monitor, self.refusals, backoffs)
        self.server.show_in(self.caches)
        for node in ("n0", "n1"):
            self.node(node)
        self.server.put("jobs", job.build())
        for each in pods:
            self.server.put("pods", each.build())

    def node(self, name: str, ready: str = "True", **spec: Any) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        self.server.put("nodes", {"metadata": {"name": name}, "spec": spec, "status": status})


async def test_a_job_of_which_no_pod_is_bound_in_time_is_evicted_as_a_whole() -> None:
    bench = Bench(pod("mpi-0"), pod("mpi-1"))
    await bench.monitor.check()
    (eviction,) = bench.requeuer.evictions
    assert (eviction.workload, eviction.reason) == (bench.row.id, Reason.START_TIMEOUT)
    assert "was not bound in 300 s" in eviction.message


async def test_a_release_is_stored_before_the_check_so_that_a_closed_node_is_found_at_once() -> None:
    bench = Bench(pod("mpi-0"), pod("mpi-1"))
    allocation = an_allocation(["n0", "n1"], states=[SlotState.TAKEN] * 2, pods=["mpi-0", "mpi-1"])
    bench.ledger.put(replace(bench.row, release_mode=ReleaseMode.PIN), replace(allocation, released_at=None))
    await bench.ledger.note_released([FluxionJobId(7)])
    bench.node("n0", unschedulable=True)
    await bench.monitor.check()
    assert bench.ledger.written("mark_released") == [7]
    assert [eviction.workload for eviction in bench.requeuer.evictions] == [bench.row.id]


async def test_before_the_time_for_a_start_is_over_nothing_is_done() -> None:
    bench = Bench(pod("mpi-0"), pod("mpi-1"))
    bench.ledger.now = EPOCH + timedelta(seconds=299)
    await bench.monitor.check()
    assert (bench.requeuer.evictions, bench.ledger.writes) == ([], [])


async def test_if_a_sibling_runs_only_the_late_pod_is_evicted_and_the_reason_is_written() -> None:
    bench = Bench(pod("mpi-0", "n0"), pod("mpi-1"))
    await bench.monitor.check()
    ((message, names),) = bench.requeuer.evicted_pods
    assert (names, bench.requeuer.evictions) == (["mpi-1"], [])
    assert "pod mpi-1 was not bound" in message
    assert [name for name, _ in bench.ledger.writes] == ["set_reasons", "set_requeue_states"]


async def test_the_reason_of_work_that_has_no_problem_any_more_is_removed() -> None:
    bench = Bench(pod("mpi-0", "n0"), pod("mpi-1", "n1"), state=State.RUNNING, reason=Reason.START_TIMEOUT)
    await bench.monitor.check()
    (change,) = bench.ledger.written("set_reasons")
    assert change.reason is Reason.NONE


async def test_a_pod_whose_node_is_cordoned_before_the_bind_is_evicted_at_once() -> None:
    bench = Bench(pod("mpi-0", "n0"), pod("mpi-1"))
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    bench.node("n1", unschedulable=True)
    await bench.monitor.check()
    assert bench.requeuer.evicted_pods == [("pod mpi-1 cannot be bound: node n1 is cordoned", ["mpi-1"])]


@pytest.mark.parametrize(("lost_s", "evicted"), [(0.0, True), (3600.0, False)])
async def test_a_job_is_evicted_once_its_node_was_not_ready_for_the_configured_time(
    lost_s: float, evicted: bool
) -> None:
    bench = Bench(
        pod("mpi-0", "n0"),
        pod("mpi-1", "n1"),
        lost_s=lost_s,
        state=State.RUNNING,
        release_mode=ReleaseMode.PIN,
    )
    bench.node("n1", ready="Unknown")
    await bench.monitor.check()
    assert ["node n1 was lost under it" in eviction.message for eviction in bench.requeuer.evictions] == [
        True
    ] * evicted


@pytest.mark.parametrize("decided", ["FailureTarget", "SuccessCriteriaMet"])
async def test_a_job_whose_end_is_decided_is_not_matched_again_for_a_pod_that_is_stuck(decided: str) -> None:
    job = JOB.with_("status.conditions", [{"type": decided, "status": "True"}])
    bench = Bench(
        pod("mpi-0", "n0"),
        pod("mpi-1", "n1"),
        job=job,
        lost_s=0.0,
        state=State.RUNNING,
        release_mode=ReleaseMode.PIN,
    )
    bench.node("n1", ready="Unknown")
    await bench.monitor.check()
    assert (bench.requeuer.evictions, bench.requeuer.evicted_pods) == ([], [])


async def test_of_a_job_released_pod_by_pod_only_the_pods_on_a_lost_node_are_replaced() -> None:
    bench = Bench(pod("mpi-0", "n0"), pod("mpi-1", "n1"), lost_s=0.0, state=State.RUNNING)
    bench.node("n1", ready="Unknown")
    await bench.monitor.check()
    assert (bench.requeuer.evicted_pods, bench.requeuer.evictions) == ([("its node was lost", ["mpi-1"])], [])


@pytest.mark.parametrize(
    ("changes", "job", "ended"),
    [
        ({}, JOB, True),
        ({"lost_s": 3600.0}, JOB, False),
        ({"reason": Reason.NODES_UNAVAILABLE}, JOB, False),
        ({"requeue_state": RequeueState(stop_at=EPOCH, preempted_for=9)}, JOB, False),
        ({}, JOB.with_("status.conditions", [{"type": "SuccessCriteriaMet", "status": "True"}]), False),
        ({"release_mode": ReleaseMode.GATE}, JOB, False),
        ({"release_mode": ReleaseMode.GATE}, JOB.with_("spec.backoffLimit", 0), True),
    ],
    ids=[
        "",
        "not for long",
        "not preempted",
        "its grace is over",
        "ends",
        "its pod is replaced",
        "would fail",
    ],
)
async def test_a_preempted_job_that_loses_a_node_has_no_grace_any_more(
    changes: dict[str, Any], job: JobBuilder, *, ended: bool
) -> None:
    told = RequeueState(stop_at=EPOCH + timedelta(hours=1), preempted_for=9)
    settings = {
        "lost_s": 0.0,
        "reason": Reason.PREEMPTED,
        "release_mode": ReleaseMode.PIN,
        "requeue_state": told,
        **changes,
    }
    bench = Bench(
        pod("mpi-0", "n0"), pod("mpi-1", "n1"), job=job, state=State.DRAINING, started_at=EPOCH, **settings
    )
    bench.node("n1", ready="Unknown")
    await bench.monitor.check()
    assert bench.requeuer.graces == ({bench.row.id: "node n1 was lost under it"} if ended else {})
    assert (bench.requeuer.evictions, bench.requeuer.evicted_pods) == ([], [])


GIVES_BACK = RequeueState(
    given_back=GivenBack(jobid=7, ranks=(1,), stop_at=EPOCH, message="mpi gave 1 of its 2 pods back")
)


@pytest.mark.parametrize("backoff_limit", [0, 6])
async def test_a_lost_node_under_a_slot_that_is_given_back_does_not_concern_the_job(
    backoff_limit: int,
) -> None:
    job = JOB.with_("spec.backoffLimit", backoff_limit)
    bench = Bench(
        pod("mpi-0", "n0"),
        pod("mpi-1", "n1"),
        job=job,
        lost_s=0.0,
        state=State.RUNNING,
        requeue_state=GIVES_BACK,
    )
    bench.node("n1", ready="Unknown")
    await bench.monitor.check()
    assert (bench.requeuer.evicted_pods, bench.requeuer.evictions) == ([], [])


async def test_a_job_that_gives_pods_back_lacks_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parallelism is lowered only once no pod of it terminates."""
    monkeypatch.setattr(node_losses, "_REPLACED_S", 0.0)
    three = make_job("mpi").indexed(3).uid("uid-of-mpi").suspended(False).label("fluxqueue/jobid", "7")
    bench = Bench(pod("mpi-0", "n0"), job=three, lost_s=0.0, timeout_s=0.0, pods=3, state=State.RUNNING)
    given = GivenBack(jobid=7, ranks=(2,), stop_at=EPOCH, message="mpi gave 1 of its 3 pods back")
    slots = an_allocation(["n0", "n1", "n2"], states=[SlotState.TAKEN] * 3, pods=["mpi-0", "mpi-1", "mpi-2"])
    bench.ledger.put(replace(bench.row, requeue_state=RequeueState(given_back=given)), slots)
    bench.node("n2")
    bench.node("n1", ready="Unknown")
    for name, node in (("mpi-1", "n1"), ("mpi-2", "n2")):
        bench.server.put(
            "pods", pod(name, node).with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z").build()
        )
    bench.server.put("pods", pod("mpi-1-again", "n0").build())
    for _ in range(2):
        await bench.monitor.check()
    assert (bench.requeuer.evicted_pods, bench.requeuer.evictions) == ([("its node was lost", [])] * 2, [])
    bench.server.remove("pods", "mpi-1-again")
    for _ in range(2):
        await bench.monitor.check()
    assert len(bench.requeuer.evictions) == 1, "that of the lost node is not replaced in time"


@pytest.mark.parametrize(
    ("message", "evicted"), [("exceeded quota: pods", 1), ("Internal error occurred: webhook", 0)]
)
async def test_a_job_whose_pods_the_api_server_refuses_is_evicted_at_once(message: str, evicted: int) -> None:
    bench = Bench()
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal(f"Error creating: {message}"))
    await bench.monitor.check()
    assert [eviction.reason for eviction in bench.requeuer.evictions] == [Reason.RELEASE_FAILED] * evicted


async def refuse_release(bench: Bench, times: int, status: int = 413) -> None:
    """Try to release the second pod so often."""
    allocation, gated = bench.ledger.allocation(bench.row.id), bench.caches.pods.get_by_uid("mpi-1")
    assert allocation is not None
    assert gated is not None
    for _ in range(times):
        bench.server.fail_next("patch", "pods", status, "", "the pod is too large")
        assert await bench.gates.remove(bench.row, allocation, 1, gated, 2) is not None


@pytest.mark.parametrize(("status", "times", "evicted"), [(413, 2, 0), (413, 3, 1), (503, 9, 0)])
async def test_a_job_of_which_the_api_server_refuses_to_release_a_pod_gives_its_nodes_back(
    status: int, times: int, evicted: int
) -> None:
    bench = Bench(pod("mpi-0"), pod("mpi-1").gate("fluxqueue"))
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    await refuse_release(bench, times, status)
    await bench.monitor.check()
    assert [eviction.reason for eviction in bench.requeuer.evictions] == [Reason.RELEASE_FAILED] * evicted
    assert all("the pod is too large" in eviction.message for eviction in bench.requeuer.evictions)


async def test_a_job_that_runs_says_which_pod_could_not_be_released_until_it_changes() -> None:
    bench = Bench(pod("mpi-0", "n0"), pod("mpi-1").gate("fluxqueue"))
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    await refuse_release(bench, 3)
    await bench.monitor.check()
    (change,) = bench.ledger.written("set_reasons")
    assert change.reason is Reason.RELEASE_FAILED
    assert "runs, but not all of it: pod mpi-1 could not be released" in change.message
    bench.server.put("pods", pod("mpi-1").gate("fluxqueue").label("changed", "true").build())
    await bench.monitor.check()
    assert bench.ledger.written("set_reasons")[-1].reason is Reason.NONE
    assert bench.requeuer.evictions == []


@pytest.mark.parametrize(("after_s", "freed"), [(299, []), (301, [1])])
async def test_the_slot_of_a_refused_pod_is_given_back_after_the_time_for_a_start(
    after_s: int, freed: list[int]
) -> None:
    bench = Bench(pod("mpi-0", "n0"))
    bench.ledger.put(
        bench.row, an_allocation(["n0", "n1"], states=[SlotState.TAKEN, SlotState.FREE], pods=["mpi-0", None])
    )
    bench.ledger.now = EPOCH + timedelta(seconds=after_s)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    assert [rank for _, rank in bench.ledger.written("end_slots")] == freed
    (change,) = bench.ledger.written("set_reasons")
    assert ("hold no nodes any more" in change.message) is bool(freed)
    assert bench.requeuer.evictions == []


@pytest.mark.parametrize(("timeout_s", "freed"), [(300.0, []), (0.0, [1])])
async def test_the_slot_of_a_replacement_that_is_refused_is_given_back_in_time(
    timeout_s: float, freed: list[int]
) -> None:
    bench = Bench(pod("mpi-0", "n0"), timeout_s=timeout_s)
    slots = an_allocation(["n0", "n1"], states=[SlotState.TAKEN, SlotState.FREE], pods=["mpi-0", None])
    bench.ledger.put(replace(bench.row, state=State.RUNNING), slots)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    await asyncio.sleep(0.01)
    await bench.monitor.check()
    assert [rank for _, rank in bench.ledger.written("end_slots")] == freed
    assert ("hold no nodes any more" in bench.ledger.written("set_reasons")[-1].message) is bool(freed)


async def test_a_replacement_that_was_created_meanwhile_has_the_whole_time_again() -> None:
    bench = Bench(pod("mpi-0", "n0"), timeout_s=0.05)
    slots = an_allocation(["n0", "n1"], states=[SlotState.TAKEN, SlotState.FREE], pods=["mpi-0", None])
    bench.ledger.put(replace(bench.row, state=State.RUNNING), slots)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    bench.server.put("pods", pod("mpi-1", "n1").build())
    await bench.monitor.check()
    await asyncio.sleep(0.1)
    bench.server.remove("pods", "default", "mpi-1")
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    assert bench.ledger.written("end_slots") == []


def fail(bench: Bench, name: str, at_s: int) -> None:
    """Let a pod run and fail so many seconds after the release."""
    bench.ledger.now = EPOCH + timedelta(seconds=at_s)
    bench.server.put("pods", pod(name, "n0").build())
    bench.server.put("pods", pod(name, "n0").phase("Failed").build())


async def test_the_back_off_of_the_job_controller_is_no_refusal_and_is_said() -> None:
    bench = Bench(job=JOB.with_("status.failed", 5))
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    fail(bench, "mpi-0", 200)
    bench.ledger.now = EPOCH + timedelta(seconds=301)
    await bench.monitor.check()
    (change,) = bench.ledger.written("set_reasons")
    assert change.message.endswith(
        "2 pods are missing because a pod failed: the Job controller creates them again by "
        "2026-01-01T00:06:05Z (its back-off)"
    )
    assert bench.requeuer.evictions == []
    bench.ledger.now = EPOCH + timedelta(seconds=366)
    await bench.monitor.check()
    assert ["2 of 2 pods were not created" in eviction.message for eviction in bench.requeuer.evictions] == [
        True
    ]


async def test_a_release_that_the_job_controller_has_not_seen_is_no_failed_start() -> None:
    suspended = {"type": "Suspended", "status": "True"}
    former = pod("mpi-0", "n0").phase("Succeeded")
    bench = Bench(former, job=UNSEEN.with_("status.conditions", [suspended]))
    await bench.monitor.check()
    assert bench.requeuer.evictions == []
    (change,) = bench.ledger.written("set_reasons")
    assert change.message == (
        "Job default/mpi keeps its nodes and does not start: the Job controller has not acted on its release "
        "in 300 s: it has much to do, or it does not run (kube-controller-manager)"
    )


async def test_the_time_for_a_start_begins_when_the_job_controller_sees_the_release() -> None:
    bench = Bench(job=UNSEEN)
    bench.server.put("pods", pod("mpi-0").build())
    await bench.monitor.check()
    bench.server.put("pods", pod("mpi-0", "n0").build())
    await bench.monitor.check()
    bench.server.put("jobs", UNSEEN.with_("status.startTime", "2026-01-01T00:05:01Z").build())
    bench.ledger.now = EPOCH + timedelta(seconds=600)
    await bench.monitor.check()
    assert (bench.requeuer.evictions, bench.ledger.written("end_slots")) == ([], [])
    bench.ledger.now = EPOCH + timedelta(seconds=602)
    await bench.monitor.check()
    assert len(bench.ledger.written("end_slots")) == 1


async def test_what_another_controller_has_seen_of_a_release_is_not_known() -> None:
    bench = Bench(job=JOB.with_("spec.managedBy", "example.com/other"))
    bench.ledger.now = EPOCH + timedelta(seconds=301)
    await bench.monitor.check()
    assert len(bench.requeuer.evictions) == 1


async def test_a_refusal_after_a_failure_counts() -> None:
    bench = Bench()
    bench.server.watch_into("events", bench.caches.failed_creations)
    fail(bench, "mpi-0", 200)
    bench.ledger.now = EPOCH + timedelta(seconds=230)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    assert [eviction.reason for eviction in bench.requeuer.evictions] == [Reason.RELEASE_FAILED]


async def test_the_reason_says_that_missing_pods_hold_no_nodes_until_they_exist() -> None:
    bench = Bench(pod("mpi-0", "n0"))
    ended = an_allocation(["n0", "n1"], states=[SlotState.TAKEN, SlotState.ENDED], pods=["mpi-0", None])
    bench.ledger.put(replace(bench.row, state=State.RUNNING), ended)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal("Error creating: exceeded quota"))
    await bench.monitor.check()
    (change,) = bench.ledger.written("set_reasons")
    assert change.message.endswith(
        "the missing pods hold no nodes any more: each gets a node of its own once it is created"
    )
    bench.ledger.put(replace(bench.row, state=State.RUNNING, reason=Reason.RELEASE_FAILED), ended)
    bench.server.put("pods", pod("mpi-1", "n1").build())
    await bench.monitor.check()
    assert bench.ledger.written("set_reasons")[-1].reason is Reason.NONE


async def test_a_job_that_cannot_be_checked_does_not_keep_others_from_being_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    other = a_workload(
        "other", uid="uid-of-other", state=State.ALLOCATED, pods=1, jobid=8, release_mode=ReleaseMode.GATE
    )
    bench.ledger.put(other, an_allocation(["n0"], jobid=8))
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal())
    decide = StartObservations.failure

    def fails(monitor: StartObservations, workload: Any, *more: Any) -> Any:
        if workload.uid == "uid-of-other":
            raise KeyError("odd")
        return decide(monitor, workload, *more)

    monkeypatch.setattr(StartObservations, "failure", fails)
    await bench.monitor.check()
    assert [eviction.workload for eviction in bench.requeuer.evictions] == [bench.row.id]


def refusal(message: str = "Error creating: no", *, by: Any = None, at: str = "default", **about: str) -> Any:
    involved = {"kind": "Job", "namespace": at, "name": "mpi", "uid": "uid-of-mpi", **about}
    event = {
        "metadata": {"name": "e", "namespace": at},
        "reason": "FailedCreate",
        "involvedObject": involved,
        "message": message,
    }
    return event | (by or {"source": {"component": "job-controller"}})


@pytest.mark.parametrize(
    ("event", "believed"),
    [
        pytest.param(refusal(), True, id="by the older library"),
        pytest.param(refusal(by={"reportingComponent": "job-controller"}), True, id="by the newer library"),
        pytest.param(refusal(at="elsewhere"), False, id="in another namespace, with the uid"),
        pytest.param(refusal(name="other"), False, id="about another name"),
        pytest.param(refusal(uid="uid-of-a-former-one"), False, id="about a former Job of this name"),
        pytest.param(refusal(by={"source": {"component": "mallory"}}), False, id="by another program"),
    ],
)
async def test_only_the_job_controllers_events_about_this_very_job_are_believed(
    event: Any, believed: bool
) -> None:
    bench = Bench()
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", event)
    await bench.monitor.check()
    assert bool(bench.requeuer.evictions) is believed


async def test_a_refusal_with_control_characters_is_stored_without_them() -> None:
    bench = Bench()
    bench.ledger.now = EPOCH + timedelta(seconds=1)
    bench.server.watch_into("events", bench.caches.failed_creations)
    bench.server.put("events", refusal("Error creating: \0\x1b[2J"))
    await bench.monitor.check()
    (eviction,) = bench.requeuer.evictions
    assert "the API server refuses its pods: \u2400\u241b[2J; " in eviction.message


async def test_pods_that_our_own_scheduler_holds_keep_their_slots() -> None:
    bench = Bench(pod("mpi-0").by_fluxion("n0"), pod("mpi-1").by_fluxion("n1"))
    await bench.monitor.check()
    (change,) = bench.ledger.written("set_reasons")
    assert "is the scheduler of fluxqueue running?" in change.message
    assert (bench.requeuer.evictions, bench.requeuer.evicted_pods) == ([], [])


async def test_a_group_of_which_no_pod_is_bound_in_time_is_evicted_as_a_whole() -> None:
    bench = Bench(job=make_job("other"), kind="StatefulSet", release_mode=ReleaseMode.GROUP)
    for name in ("mpi-0", "mpi-1"):
        bench.server.put(
            "pods", pod(name).owned_by("StatefulSet", "mpi").annotation("fluxqueue/gang", "true").build()
        )
    await bench.monitor.check()
    ((eviction, members),) = bench.requeuer.groups
    assert (eviction.workload, sorted(members)) == (bench.row.id, ["mpi-0", "mpi-1"])
    assert bench.requeuer.evictions == []


async def test_remnants_and_evicted_work_are_left_alone() -> None:
    bench = Bench(pod("mpi-0"), pod("mpi-1"))
    bench.ledger.put(replace(bench.row, state=State.DRAINING, reason=Reason.PREEMPTED))
    await bench.monitor.check()
    assert (bench.requeuer.evictions, bench.ledger.writes) == ([], [])


async def test_it_ends_when_it_is_cancelled_at_the_moment_a_node_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fluxqueue.queue.requeue.startup_monitor._PACE_S", 0)
    bench = Bench()
    task = asyncio.create_task(bench.monitor.run())
    for _ in range(20):  # the first check, and then it waits
        await asyncio.sleep(0)
    bench.node("n0", unschedulable=True)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


HELD = (
    make_job("mpi")
    .uid("uid-of-mpi")
    .suspended(False)
    .label("fluxqueue/jobid", "7")
    .pod_label("fluxqueue/pinned", "yes")
)


def held_pod(name: str) -> PodBuilder:
    """A pod that came to node n1 by its template, and is stored in no slot yet."""
    return pod(name).annotation("fluxqueue/fluxion-nodes", "n1").label("fluxqueue/pinned", "yes").cpu("4")


async def test_a_job_whose_template_holds_a_closed_node_is_evicted_as_soon_as_its_next_pod_comes() -> None:
    bench = Bench(job=HELD, state=State.RUNNING)
    bench.node("n1", unschedulable=True)
    monitoring = asyncio.create_task(bench.monitor.run())
    bench.server.put("pods", held_pod("mpi-later").build())
    await until(lambda: bench.requeuer.evictions)
    monitoring.cancel()
    (eviction,) = bench.requeuer.evictions
    assert (eviction.workload, eviction.reason) == (bench.row.id, Reason.NODES_UNAVAILABLE)
    assert "pod mpi-later cannot be bound: node n1 is cordoned" in eviction.message
    assert bench.requeuer.evicted_pods == [], "a replacement would come to the same node"


@pytest.mark.parametrize(
    ("state", "settled_s", "evicted"),
    [
        pytest.param(State.RUNNING, 0.0, True, id="a later pod"),
        pytest.param(State.RUNNING, 5.0, False, id="what leaves the node may not be gone yet"),
        pytest.param(State.ALLOCATED, 0.0, False, id="a first start has its whole time"),
    ],
)
async def test_a_pod_whose_template_holds_a_full_node_does_not_wait_for_the_start_timeout(
    monkeypatch: pytest.MonkeyPatch, state: State, settled_s: float, evicted: bool
) -> None:
    monkeypatch.setattr(start_observations, "_SETTLED_S", settled_s)
    bench = Bench(held_pod("mpi-later"), job=HELD, state=state)
    bench.ledger.now = EPOCH
    bench.server.put("nodes", make_node("n1", cpu="4").build())
    bench.server.put("pods", make_pod("foreign").uid("foreign").on_node("n1").cpu("1").build())
    await bench.monitor.check()
    messages = [eviction.message for eviction in bench.requeuer.evictions]
    assert ["node n1 has too little cpu left" in message for message in messages] == (
        [True] if evicted else []
    )


@pytest.mark.parametrize("shared", [True, False])
async def test_a_pod_that_the_scheduler_refuses_a_share_of_a_device_is_late_after_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "cannot allocate all claims",
    }
    waits = pod("mpi-1").annotation("fluxqueue/fluxion-nodes", "n1").with_("status.conditions", [refused])
    bench = Bench(
        pod("mpi-0", "n0"), waits.with_("spec.resourceClaims", resource_claims("t")), state=State.RUNNING
    )
    devices = bench.caches.devices
    body = a_slice("n1", ["large"])
    body["spec"]["devices"][0]["allowMultipleAllocations"] = shared
    devices.counted = True
    devices.slices.apply(msgspec.convert(body, ResourceSlice))
    devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    devices.templates.apply(msgspec.convert(a_template("t", namespace="default"), ResourceClaimTemplate))
    monkeypatch.setattr(start_observations, "_OVERLOOKED_S", 0.0)
    await bench.monitor.check()
    await bench.monitor.check()
    assert bool(bench.requeuer.evicted_pods or bench.requeuer.evictions) is shared
