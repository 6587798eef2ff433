"""How preempted groups and pods free their nodes, and what becomes of the pods that an owner creates
instead.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.builders import PodBuilder, make_pod
from support.controller_bench import (
    RecordedEvents,
    TriggerLog,
    managed_caches,
    running_controllers,
    until,
)
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.groups import REPLACED_WITHIN, group_key
from fluxqueue.queue.model.records import ReleaseMode, SlotState, Workload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.disruptions import Disruptor
from fluxqueue.queue.requeue.group_steps import GroupStep, next_group_step
from fluxqueue.queue.requeue.preemption_notices import PreemptionNotices
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.tracking.tracker import Tracker

NODES = ["n0", "n1"]


def member(number: int, **changes: Any) -> PodBuilder:
    pod = (
        make_pod(f"db-{number}")
        .uid(f"pod-{number}")
        .label(names.POD_GROUP_LABEL, "db")
        .annotation(names.POD_GROUP_SIZE_ANNOTATION, "2")
    )
    return (
        pod.annotation(names.ALLOCATION_ANNOTATION, "7")
        .label(names.JOBID_LABEL, "7")
        .on_node(NODES[number])
        .phase("Running")
    )


def replacement(number: int) -> PodBuilder:
    pod = make_pod(f"db-{number}").uid(f"new-{number}").gate(names.GATE).label(names.POD_GROUP_LABEL, "db")
    return pod.annotation(names.POD_GROUP_SIZE_ANNOTATION, "2")


class Bench:
    """A pod group of two pods that run on n0 and n1, or one pod of an owner."""

    def __init__(self, *pods: PodBuilder, released: bool = True, **changes: Any) -> None:
        settings: dict[str, Any] = {
            "kind": "PodGroup",
            "release_mode": ReleaseMode.GROUP,
            "uid": "group-pod-0",
            "pods": 2,
        }
        self.row = a_workload(
            "db", jobid=7, started_at=EPOCH, **{"state": State.RUNNING, **settings, **changes}
        )
        pods = pods or (member(0), member(1))
        uids = [pod.build()["metadata"]["uid"] for pod in pods]
        held = an_allocation(NODES[: len(pods)], states=[SlotState.TAKEN] * len(pods), pods=uids)
        self.ledger = RecordingLedger(
            (self.row, replace(held, workload=self.row.id, released_at=EPOCH if released else None))
        )
        self.server, self.events = MemoryApi(), RecordedEvents()
        self.caches = managed_caches(self.server)
        api, trigger = self.server.api, TriggerLog().trigger
        self.intake = IntakeController(api, self.caches, self.ledger, trigger)
        subscribe(self.caches, self.ledger, self.intake)
        gates = PodGates(api, self.ledger, self.caches.pods.get_by_uid)
        reread, recorder = self.intake.enqueue, self.events.recorder
        self.requeuer = Requeuer(api, self.caches, self.ledger, trigger, gates, reread, recorder)
        subscribe(self.caches, self.ledger, self.requeuer)
        self.tracker = Tracker(
            api,
            self.caches,
            self.ledger,
            trigger,
            gates,
            self.intake.enqueue,
            self.requeuer.evict,
            grace_s=0.1,
        )
        subscribe(self.caches, self.ledger, self.tracker)
        self.notices = PreemptionNotices(api, self.caches, self.ledger, self.events.recorder)
        subscribe(self.caches, self.ledger, self.notices)
        for node in NODES:
            self.node(node, ready=True)
        for pod in pods:
            self.server.put("pods", pod.build())

    def node(self, name: str, *, ready: bool) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
        self.server.put("nodes", {"metadata": {"name": name}, "status": status})

    def now(self) -> Workload:
        row = self.ledger.get(self.row.id)
        assert row is not None
        return row

    async def preempt(self, grace_s: int = 0) -> None:
        state = RequeueState(stop_at=EPOCH + timedelta(seconds=grace_s))
        evicted = Eviction(
            workload=self.row.id, reason=Reason.PREEMPTED, message="for other work", requeue_state=state
        )
        assert await self.requeuer.evict([evicted]) == []

    async def proceed(self) -> float | None:
        return await self.requeuer._proceed(self.row.id)


async def test_a_preempted_group_is_evicted_and_requeued_once_none_of_its_pods_lives() -> None:
    bench = Bench()
    await bench.preempt()
    await bench.proceed()
    assert [write.name for write in bench.server.written("create", "pods/eviction")] == ["db-0", "db-1"]
    assert bench.ledger.written("requeue") == []
    await bench.proceed()
    (requeue,) = bench.ledger.written("requeue")
    assert (requeue.reason, requeue.kept) == (Reason.PREEMPTED, ())
    assert (bench.now().state, bench.now().submitted_at) == (State.PENDING, bench.row.submitted_at)
    assert bench.now().requeue_state.not_before == EPOCH + REPLACED_WITHIN


async def test_a_pod_whose_budget_forbids_it_is_asked_for_again() -> None:
    bench = Bench()
    bench.server.fail_next("create", "pods/eviction", 429, "TooManyRequests")
    await bench.preempt()
    assert await bench.proceed() == 10
    bench.ledger.now += timedelta(seconds=9)
    assert await bench.proceed() == 1, "an event of another pod brings it back early"
    assert len(bench.server.written("create", "pods/eviction")) == 1
    bench.ledger.now += timedelta(seconds=1)
    await bench.proceed()
    assert sorted(write.name for write in bench.server.written("create", "pods/eviction")) == ["db-0", "db-1"]
    await bench.proceed()
    assert bench.now().state is State.PENDING


async def test_work_whose_eviction_is_refused_says_so_once() -> None:
    bench = Bench()
    await bench.preempt()
    for _ in range(2):
        for _ in range(2):
            bench.server.fail_next("create", "pods/eviction", 429, "TooManyRequests")
        assert await bench.proceed() == 10
        bench.ledger.now += timedelta(seconds=10)
    assert [(who, reason) for who, reason, *_ in bench.events.events] == [
        ("Pod db-0", "NotPreempted"),
        ("Pod db-1", "NotPreempted"),
    ]
    text = bench.events.events[0][2]
    assert text.startswith(
        "PodGroup default/db was to be preempted and goes on until its eviction is allowed: "
    )


async def test_a_gang_whose_budget_forbids_it_costs_few_calls_and_each_pass_asks_for_other_pods() -> None:
    bench = Bench()
    pods = [a_pod(make_pod(f"p{number}"), uid=f"p{number}") for number in range(40)]
    for pod in pods:
        bench.server.put("pods", make_pod(pod.metadata.name).uid(pod.metadata.uid).build())
    disruptor = Disruptor(bench.server.api, bench.ledger)
    for refused in (16, 32):
        for _ in range(16):
            bench.server.fail_next("create", "pods/eviction", 429, "TooManyRequests")
        assert (
            await disruptor.disrupt(bench.row.id, pods) == await disruptor.disrupt(bench.row.id, pods) == 10
        )
        assert (bench.server.calls_refused, bench.server.written("create", "pods/eviction")) == (refused, [])
        bench.ledger.now += timedelta(seconds=10)
    assert await disruptor.disrupt(bench.row.id, pods) == 2
    assert [write.name for write in bench.server.written("create", "pods/eviction")] == [
        f"p{(32 + n) % 40}" for n in range(40)
    ]


async def test_a_group_goes_on_for_its_grace_and_its_pods_are_told() -> None:
    bench = Bench()
    await bench.preempt(grace_s=30)
    assert await bench.proceed() == 30
    await bench.notices._tell(bench.row.id)
    told = [
        bench.server.get("pods", f"db-{number}")["metadata"]["annotations"][names.PREEMPT_AT_ANNOTATION]
        for number in range(2)
    ]
    assert told == ["2026-01-01T00:00:30Z"] * 2
    said = [(who, reason) for who, reason, *_ in bench.events.events]
    assert said == [("Pod db-0", "PreemptionNotice"), ("Pod db-1", "PreemptionNotice")]
    assert bench.server.written("create", "pods/eviction") == []


async def test_a_group_whose_pods_are_deleted_in_its_grace_frees_its_nodes_at_once() -> None:
    bench = Bench()
    await bench.preempt(grace_s=600)
    bench.server.remove("pods", "db-0")
    assert await bench.proceed() == 600, "one of its pods goes on"
    bench.server.remove("pods", "db-1")
    assert await bench.proceed() is None
    assert bench.now().state is State.PENDING


async def test_a_group_whose_pods_end_in_its_grace_is_not_requeued() -> None:
    bench = Bench(member(0).phase("Succeeded"), member(1).phase("Succeeded"))
    await bench.preempt(grace_s=600)
    assert await bench.proceed() == 600, "the tracker ends it as it ended"


async def test_pods_that_go_at_once_get_an_event_and_nothing_else() -> None:
    bench = Bench()
    await bench.preempt()
    for _ in range(2):
        assert await bench.notices._tell(bench.row.id) is None
    assert [(who, message) for who, _, message, _ in bench.events.events] == [
        ("Pod db-0", "for other work"),
        ("Pod db-1", "for other work"),
    ]
    assert bench.server.written("patch", "pods") == []


async def test_new_pods_wait_with_a_group_that_is_evicted_and_are_matched_with_it() -> None:
    bench = Bench()
    async with running_controllers(bench.intake, bench.tracker):
        await bench.preempt()
        bench.server.remove("pods", "db-0")
        bench.server.put("pods", replacement(0).build())
        await bench.proceed()
        bench.server.put("pods", replacement(1).build())
        bench.intake.enqueue("new-0")
        bench.intake.enqueue("new-1")
        await bench.proceed()
        await until(
            lambda: bench.now().state is State.PENDING and bench.now().jobspec and bench.now().generation > 0
        )
    assert bench.server.written("patch", "pods") == [], "no pod was released onto the old slots"
    assert [each.uid for each in bench.ledger.all()] == [bench.row.uid]
    assert (bench.now().pods, bench.now().submitted_at) == (2, bench.row.submitted_at)


async def test_a_group_that_nobody_creates_again_ends_and_says_so() -> None:
    bench = Bench()
    async with running_controllers(bench.intake):
        await bench.preempt()
        await bench.proceed()
        await bench.proceed()
        bench.ledger.now = EPOCH + REPLACED_WITHIN
        bench.intake.enqueue(bench.row.uid)
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert ending.state is State.CANCELLED
    assert (
        ending.message
        == "PodGroup default/db ends: nobody created its pods again, so submit it again; for other work"
    )


@pytest.mark.parametrize(
    ("plural", "kind", "version"),
    [("statefulsets", "StatefulSet", "apps/v1"), ("jobsets", "JobSet", "jobset.x-k8s.io/v1alpha2")],
)
@pytest.mark.parametrize(
    ("deleted", "seconds"), [(False, 610), (True, 20)], ids=["for ten minutes", "until its owner is deleted"]
)
async def test_a_group_waits_for_an_owner_that_wants_pods(
    plural: str, kind: str, version: str, deleted: bool, seconds: int
) -> None:
    bench = Bench(kind=kind, api_version=version)
    bench.server.put(
        plural, {"metadata": {"name": "db"}, "spec": {"replicas": 2} if plural == "statefulsets" else {}}
    )
    await bench.preempt()
    await bench.proceed()
    for number in range(2):
        bench.server.remove("pods", f"db-{number}")  # as the controller of a suspended JobSet does
    await bench.proceed()
    for passed in (10, seconds - 1, seconds):
        bench.ledger.now = EPOCH + timedelta(seconds=passed)
        if deleted and passed == seconds:
            bench.server.remove(plural, "db")
        await bench.intake.take_in([group_key(bench.row)])
        assert bool(bench.ledger.written("finish")) is (passed == seconds)
    (ending,) = bench.ledger.written("finish")
    assert (
        ending.message
        == f"{kind} default/db ends: nobody created its pods again, so submit it again; for other work"
    )


async def test_a_group_that_is_deleted_after_its_pods_were_created_again_is_not_told_that_they_were_not() -> (
    None
):
    bench = Bench()
    async with running_controllers(bench.intake):
        await bench.preempt()
        await bench.proceed()
        await bench.proceed()
        for number in range(2):
            bench.server.put("pods", replacement(number).build())
        await until(lambda: bench.now().generation > 0)
        bench.ledger.now = EPOCH + timedelta(hours=1)
        for number in range(2):
            bench.server.remove("pods", f"db-{number}")
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert ending.message == "PodGroup default/db ends: its pods were deleted while it waited"


async def test_a_group_that_is_ended_at_its_limit_is_not_requeued() -> None:
    bench = Bench()
    await bench.preempt(grace_s=60)
    await bench.ledger.set_requeue_states(
        {bench.row.id: RequeueState(time_limit=EPOCH + timedelta(seconds=1))}
    )
    for number in range(2):
        bench.server.remove("pods", f"db-{number}")
    await bench.proceed()
    assert bench.ledger.written("requeue") == []
    async with running_controllers(bench.tracker):
        bench.tracker.resync()
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.FAILED, Outcome.TIME_LIMIT)


async def test_the_slots_of_pods_that_succeeded_before_end_and_those_of_evicted_pods_do_not() -> None:
    bench = Bench(member(0).phase("Succeeded"), member(1))
    await bench.preempt()
    async with running_controllers(bench.tracker):
        bench.tracker.resync()
        await until(lambda: bench.ledger.written("end_slots"))
        bench.server.put(
            "pods",
            member(1).with_("metadata.deletionTimestamp", "2026-01-01T00:00:05Z").phase("Succeeded").build(),
        )
        bench.tracker.resync()
        bench.server.remove("pods", "db-1")
    assert bench.ledger.written("end_slots") == [(7, 0)]
    assert bench.ledger.written("finish") == []


def test_pods_on_lost_nodes_keep_their_slots_and_delay_no_requeue() -> None:
    allocation = an_allocation(NODES, states=[SlotState.TAKEN] * 2, pods=["pod-0", "pod-1"])
    going = a_pod(member(0).with_("metadata.deletionTimestamp", "2026-01-01T00:00:05Z"), uid="pod-0")
    assert next_group_step([going], allocation, lambda _node: False).step is GroupStep.WAIT
    step = next_group_step([going], allocation, lambda node: node == "n0")
    assert (step.step, step.kept) == (GroupStep.REQUEUE, ((7, 0),))


async def test_a_preempted_pod_of_an_owner_is_evicted_and_hands_its_submit_time_on() -> None:
    pod = (
        make_pod("web-0")
        .uid("pod-0")
        .owned_by("ReplicaSet", "web", api_version="apps/v1")
        .on_node("n0")
        .phase("Running")
    )
    owner = pod.build()["metadata"]["ownerReferences"][0]["uid"]
    bench = Bench(pod, kind="Pod", release_mode=ReleaseMode.POD, uid="pod-0", pods=1)
    async with running_controllers(bench.intake, bench.tracker):
        await bench.preempt()
        await bench.proceed()
        assert [write.name for write in bench.server.written("create", "pods/eviction")] == ["web-0"]
        await until(lambda: bench.ledger.written("finish"))
        bench.ledger.now = EPOCH + timedelta(seconds=60)
        again = (
            make_pod("web-1")
            .uid("pod-1")
            .owned_by("ReplicaSet", "web", api_version="apps/v1")
            .gate(names.GATE)
        )
        bench.server.put("pods", again.build())
        await until(lambda: bench.ledger.by_uid("pod-1") is not None)
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.message) == (State.CANCELLED, "for other work")
    row = bench.ledger.by_uid("pod-1")
    assert row is not None
    assert (row.submitted_at, row.requeue_state.owner, row.requeue_state.submitted_at) == (
        bench.row.submitted_at,
        owner,
        None,
    )


async def test_a_preempted_pod_that_waits_again_itself_hands_no_submit_time_on() -> None:
    pod = make_pod("web-0").uid("pod-0").owned_by("ReplicaSet", "web", api_version="apps/v1").gate(names.GATE)
    bench = Bench(
        pod,
        kind="Pod",
        release_mode=ReleaseMode.POD,
        uid="pod-0",
        pods=1,
        state=State.ALLOCATED,
        released=False,
    )
    await bench.preempt()
    assert bench.now().requeue_state.submitted_at is not None
    await bench.proceed()
    assert (bench.now().state, bench.now().requeue_state.owner, bench.now().requeue_state.submitted_at) == (
        State.PENDING,
        "",
        None,
    )
    added = bench.server.put(
        "pods", make_pod("web-1").uid("pod-1").owned_by("ReplicaSet", "web", api_version="apps/v1").build()
    )
    assert bench.ledger.owner_requeue_states.take_submit_time(added, EPOCH) is None


async def test_a_bare_pod_is_evicted_only_if_it_is_preempted() -> None:
    bench = Bench(
        make_pod("one").uid("pod-0").on_node("n0").phase("Running"),
        kind="Pod",
        release_mode=ReleaseMode.POD,
        uid="pod-0",
        pods=1,
    )
    lost = Eviction(workload=bench.row.id, reason=Reason.NODES_UNAVAILABLE, message="its node was lost")
    assert await bench.requeuer.evict([lost]) == [bench.row.id]
    await bench.preempt()
    await bench.proceed()
    assert [write.name for write in bench.server.written("create", "pods/eviction")] == ["one"]
