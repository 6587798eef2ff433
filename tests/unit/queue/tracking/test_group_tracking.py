"""When the slots of a JobSet are kept, and when they end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

from support.builders import JobBuilder, PodBuilder, make_job, make_pod
from support.controller_bench import TriggerLog, managed_caches, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.kube.transport import Api
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import ReleaseMode, SlotState
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.tracking.group_tracking import GroupTracker
from fluxqueue.queue.tracking.last_phases import LastPhases
from fluxqueue.queue.tracking.tracker import Tracker

JOBSET = "jobset.x-k8s.io/v1alpha2"
FAILED = [{"type": "Failed", "status": "True"}]


def job(uid: str) -> JobBuilder:
    return (
        make_job("train-workers-0").uid(uid).suspended(False).owned_by("JobSet", "train", api_version=JOBSET)
    )


def pod(uid: str, phase: str) -> PodBuilder:
    labelled = (
        make_pod(uid)
        .uid(uid)
        .owned_by("Job", "train-workers-0")
        .label("jobset.sigs.k8s.io/jobset-name", "train")
    )
    return labelled.phase(phase).on_node("n0")


async def _not_evicted(_evictions: object) -> None: ...


class Bench:
    """A JobSet with one Job, whose pod failed in its slot."""

    def __init__(self, requeue_state: RequeueState | None = None, **jobset: Any) -> None:
        settings: dict[str, Any] = {
            "kind": "JobSet",
            "api_version": JOBSET,
            "release_mode": ReleaseMode.GROUP,
            "state": State.RUNNING,
        }
        row = a_workload(
            "train",
            uid="uid",
            jobid=7,
            started_at=EPOCH,
            requeue_state=requeue_state or RequeueState(),
            **settings,
        )
        self.ledger = RecordingLedger((row, an_allocation(["n0"], states=[SlotState.TAKEN], pods=["first"])))
        self.server = MemoryApi()
        self.caches = managed_caches(self.server)
        gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.tracker = Tracker(
            self.server.api,
            self.caches,
            self.ledger,
            TriggerLog().trigger,
            gates,
            lambda _uid: None,
            _not_evicted,
            grace_s=60,
        )
        subscribe(self.caches, self.ledger, self.tracker)
        self.server.put(
            "nodes",
            {"metadata": {"name": "n0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        )
        self.server.put("jobsets", {"metadata": {"name": "train", "namespace": "default"}, **jobset})
        self.server.put("jobs", job("first-job").with_("status.conditions", FAILED).build())
        self.server.put("pods", pod("first", "Failed").build())

    def forget_job(self) -> None:
        """Delete the Job and its pod, as a JobSet does that restarts."""
        self.server.remove("pods", "first")
        self.server.remove("jobs", "train-workers-0")


async def test_a_jobset_that_restarts_keeps_its_slots() -> None:
    bench = Bench()
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("vacate_slots"))
        bench.forget_job()
        await asyncio.sleep(0.3)
    assert bench.ledger.written("end_slots") == []
    assert bench.ledger.written("finish") == []


async def test_the_slots_of_a_jobset_that_failed_for_good_end_at_once() -> None:
    bench = Bench(status={"conditions": FAILED})
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert ending.state == State.FAILED


async def test_the_slots_of_a_jobset_that_is_deleted_end_at_once() -> None:
    bench = Bench()
    bench.server.remove("jobsets", "train")
    bench.forget_job()
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("finish"))


async def test_a_slot_on_a_node_that_refused_its_pod_is_not_kept_for_the_next_one() -> None:
    bench = Bench(
        RequeueState(refused={"n0": NodeRefusal(EPOCH + timedelta(seconds=1), EPOCH + timedelta(hours=1))})
    )
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("finish"))


async def test_what_a_jobset_restarts_after_its_time_limit_is_new_work() -> None:
    bench = Bench(RequeueState(time_limit=EPOCH))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("finish"))


class Gang:
    """A pod group whose pods are replaced."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.row = a_workload(
            "ring", kind="PodGroup", release_mode=ReleaseMode.GROUP, pods=slots, jobspec='{"resources": []}'
        )
        self.caches = managed_caches(MemoryApi())
        self.ledger = RecordingLedger()
        self.ledger.put(self.row)
        self.tracker = GroupTracker(
            cast(Api, None),
            self.caches,
            self.ledger,
            LastPhases(self.ledger),
            lambda _workload, _delay_s: None,
            lambda _uid: None,
            grace_s=60,
        )

    async def plan(self, phase: str, *names: str) -> None:
        """Plan the slots with these pods, which replaced all others."""
        for old in self.caches.pods.list():
            self.caches.pods.remove(old)
        for name in names:
            member = make_pod(name).label("fluxqueue/pod-group", "ring").on_node("n0").phase(phase)
            self.caches.pods.apply(a_pod(member, uid=name))
        taken = [SlotState.TAKEN] * self.slots
        await self.tracker.plan(self.row, an_allocation(["n0"] * self.slots, states=taken, pods=[*names]))


async def test_what_is_kept_of_the_pods_of_a_gang_grows_with_its_slots_and_not_with_replaced_pods() -> None:
    gang = Gang(4)
    for number in range(1_000):
        await gang.plan("Running", *(f"p{number}-{slot}" for slot in range(4)))
    gang.tracker.prune()
    assert len(gang.tracker._seen[gang.row.id][1].phases) <= 2 * gang.slots


async def test_a_gang_ends_as_all_pods_did_that_ever_had_its_slots() -> None:
    gang = Gang(2)
    await gang.plan("Failed", "a", "b")
    await gang.plan("Running", "c", "d")
    await gang.plan("Running", "e", "f")
    ending = gang.tracker.conclude(gang.row)
    assert (ending.state, ending.message) == (State.FAILED, "2 of its pods failed and were not replaced")


async def test_a_gang_whose_replacements_all_succeeded_has_succeeded() -> None:
    gang = Gang(2)
    await gang.plan("Failed", "a", "b")
    await gang.plan("Succeeded", "c", "d")
    assert gang.tracker.conclude(gang.row).state is State.COMPLETED


async def test_a_pod_that_lives_without_its_slot_does_not_count_once_it_is_matched_alone() -> None:
    gang = Gang(1)
    await gang.plan("Running", "withdrawn")
    gang.caches.pods.apply(
        a_pod(
            make_pod("next").label("fluxqueue/pod-group", "ring").on_node("n0").phase("Succeeded"), uid="next"
        )
    )
    allocation = an_allocation(["n0"], states=[SlotState.TAKEN], pods=["next"])
    await gang.tracker.plan(gang.row, allocation)
    gang.ledger.put(a_workload("withdrawn", uid="withdrawn", kind="Pod", release_mode=ReleaseMode.POD))
    await gang.tracker.plan(gang.row, allocation)
    assert list(gang.tracker._seen[gang.row.id][1].phases) == ["next"]
