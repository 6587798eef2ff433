"""How the owner of a preempted gang is suspended and resumed, wherever the process ends in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.controller_bench import (
    RecordedEvents,
    TriggerLog,
    managed_caches,
    running_controllers,
    until,
)
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.owner_handles import (
    HANDLES,
    OwnerHandle,
    SuspendableObject,
    handle_of,
    is_suspended,
)
from fluxqueue.queue.model.records import ReleaseMode, SlotState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.owner_suspension import OwnerSuspender
from fluxqueue.queue.requeue.requeuer import Requeuer

JOBSET = "jobset.x-k8s.io/v1alpha2"


def pod(number: int, controller: str = "Job") -> PodBuilder:
    made = (
        make_pod(f"train-{number}")
        .uid(f"pod-{number}")
        .owned_by(controller, "train-workers-0")
        .on_node("n0")
        .phase("Running")
    )
    return made.label(names.JOBSET_NAME_LABEL, "train")


class Bench:
    """A JobSet of two pods, preempted; `lead` makes a new leader, which knows what is stored."""

    def __init__(self, controller: str = "Job", **jobset: Any) -> None:
        settings: dict[str, Any] = {
            "kind": "JobSet",
            "api_version": JOBSET,
            "release_mode": ReleaseMode.GROUP,
            "uid": "group-pod-0",
        }
        self.row = a_workload("train", state=State.RUNNING, pods=2, jobid=7, started_at=EPOCH, **settings)
        held = an_allocation(["n0", "n0"], states=[SlotState.TAKEN] * 2, pods=["pod-0", "pod-1"])
        self.ledger = RecordingLedger((self.row, held))
        self.server = MemoryApi()
        self.caches = managed_caches(self.server)
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.server.put("nodes", {"metadata": {"name": "n0"}, "status": status})
        self.server.put("jobsets", {"metadata": {"name": "train"}, "spec": {"replicatedJobs": []}, **jobset})
        owner = {"apiVersion": JOBSET, "kind": "JobSet", "name": "train", "uid": "u", "controller": True}
        self.server.put(
            "jobs", make_job("train-workers-0").uid("job").with_("metadata.ownerReferences", [owner]).build()
        )
        for number in range(2):
            self.server.put("pods", pod(number, controller).build())
        self.events = RecordedEvents()
        self.lead()

    def lead(self) -> None:
        self.trigger = TriggerLog()
        gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.requeuer = Requeuer(
            self.server.api,
            self.caches,
            self.ledger,
            self.trigger.trigger,
            gates,
            lambda _uid: None,
            self.events.recorder,
        )
        subscribe(self.caches, self.ledger, self.requeuer)

    def jobset(self) -> tuple[Any, str | None]:
        found = self.server.get("jobsets", "train")
        return found["spec"].get("suspend"), found["metadata"].get("labels", {}).get(
            names.SUSPENDED_BY_QUEUE_LABEL
        )

    async def preempt(self) -> None:
        await self.requeuer.evict(
            [Eviction(workload=self.row.id, reason=Reason.PREEMPTED, message="for other work")]
        )

    async def proceed(self) -> float | None:
        return await self.requeuer._proceed(self.row.id)

    def stop_pods(self) -> None:
        """Delete the pods, as the controller of a suspended JobSet does."""
        for number in range(2):
            self.server.remove("pods", f"train-{number}")

    @property
    def state(self) -> State:
        row = self.ledger.get(self.row.id)
        assert row is not None
        return row.state


async def test_a_jobset_is_suspended_until_its_pods_are_gone_and_no_pod_is_evicted() -> None:
    bench = Bench()
    await bench.preempt()
    await bench.proceed()
    assert bench.jobset() == (True, "7")
    await bench.proceed()
    bench.stop_pods()
    await bench.proceed()
    assert (bench.jobset(), bench.state) == ((False, None), State.PENDING)
    assert bench.server.written("create", "pods/eviction") == []
    assert len(bench.server.written("patch", "jobsets")) == 2


@pytest.mark.parametrize("dies_after", ["stored", "suspended", "pods gone", "resumed"])
async def test_a_new_leader_goes_on_wherever_the_former_one_ended(dies_after: str) -> None:
    bench = Bench()
    await bench.preempt()
    for step in ("stored", "suspended", "pods gone", "resumed"):
        if step == "suspended":
            await bench.proceed()
        if step == "pods gone":
            bench.stop_pods()
        if step == "resumed":
            await bench.requeuer.owners.resume(bench.row)
        if step == dies_after:
            bench.lead()
    await bench.proceed()
    assert (bench.jobset(), bench.state) == ((False, None), State.PENDING)
    assert len(bench.server.written("patch", "jobsets")) == 2


async def test_a_conflict_is_tried_again_and_evicts_nothing() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "jobsets", 409, "Conflict")
    await bench.preempt()
    assert await bench.proceed() is not None
    assert bench.server.written("create", "pods/eviction") == []
    await bench.proceed()
    assert bench.jobset() == (True, "7")


@pytest.mark.parametrize(
    ("status", "reason"), [(403, "Forbidden"), (422, "Invalid"), (404, "NotFound"), (0, "pruned")]
)
async def test_an_owner_that_cannot_be_suspended_goes_on_and_an_event_says_so(
    status: int, reason: str
) -> None:
    bench = Bench()
    await bench.preempt()
    for seconds in (0, 9, 10):
        bench.ledger.now = EPOCH + timedelta(seconds=seconds)
        if status and seconds != 9:
            bench.server.fail_next("patch", "jobsets", status, reason)
        bench.server.dropped = "jobsets", "suspend"
        assert await bench.proceed() == (1 if seconds == 9 else 10)
    assert bench.server.calls_refused == (2 if status else 0)
    assert bench.server.written("create", "pods/eviction") == []
    said = [(who, event) for who, event, *_ in bench.events.events]
    assert said == [("Pod train-0", "NotPreempted"), ("Pod train-1", "NotPreempted")]
    bench.server.dropped = None
    bench.ledger.now = EPOCH + timedelta(seconds=20)
    await bench.proceed()
    assert bench.jobset() == (True, "7"), "it was made possible"


async def test_an_owner_that_another_controller_resumes_at_once_is_suspended_again_after_a_pause() -> None:
    bench = Bench()
    await bench.preempt()
    for waits in (2, 10, 10):
        assert await bench.proceed() == waits
        bench.server.put("jobsets", {**bench.server.get("jobsets", "train"), "spec": {"suspend": False}})
    assert len(bench.server.written("patch", "jobsets")) == 2
    assert [event for _, event, *_ in bench.events.events] == ["NotPreempted"] * 2


async def test_pods_that_no_job_controls_are_evicted_if_their_owner_cannot_be_suspended() -> None:
    bench = Bench(controller="JobSet")
    bench.server.fail_next("patch", "jobsets", 403, "Forbidden")
    await bench.preempt()
    await bench.proceed()
    assert len(bench.server.written("create", "pods/eviction")) == 2


async def test_what_its_user_suspended_stays_suspended() -> None:
    bench = Bench(spec={"suspend": True})
    await bench.preempt()
    await bench.proceed()
    bench.stop_pods()
    await bench.proceed()
    assert (bench.jobset(), bench.state) == ((True, None), State.PENDING)
    assert bench.server.written("patch", "jobsets") == []


@pytest.fixture
def refused_verbs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Verbs to which the queue has no right; to JobSets it has the others."""
    refused: set[str] = set()

    async def may(_self: OwnerSuspender, verb: str, handle: OwnerHandle) -> bool:
        return handle.kind == "JobSet" and verb not in refused

    monkeypatch.setattr(OwnerSuspender, "_may", may)
    return refused


@pytest.mark.usefixtures("refused_verbs")
async def test_the_sweep_resumes_an_owner_whose_gang_ended_meanwhile() -> None:
    bench = Bench(
        metadata={"name": "train", "labels": {names.SUSPENDED_BY_QUEUE_LABEL: "7"}}, spec={"suspend": True}
    )
    await bench.preempt()
    await bench.requeuer.owners.repair()
    assert bench.jobset() == (True, "7"), "its gang frees its nodes"
    bench.ledger.end(bench.row)
    await bench.requeuer.owners.repair()
    assert bench.jobset() == (False, None)


@pytest.mark.usefixtures("refused_verbs")
async def test_one_object_that_cannot_be_resumed_keeps_no_other_suspended_in_any_namespace() -> None:
    bench = Bench()
    where = [("a", "default"), ("b", "default"), ("a", "other")]
    for name, namespace in where:
        meta = {"name": name, "namespace": namespace, "labels": {names.SUSPENDED_BY_QUEUE_LABEL: "9"}}
        bench.server.put("jobsets", {"metadata": meta, "spec": {"suspend": True}})
    bench.server.fail_next("patch", "jobsets", 409, "Conflict")
    await bench.requeuer.owners.repair()
    assert [bench.server.get("jobsets", *each)["spec"]["suspend"] for each in where] == [True, False, True]


async def test_the_sweep_asks_for_the_right_to_suspend_again(refused_verbs: set[str]) -> None:
    owners = Bench().requeuer.owners
    assert not any(map(owners.may_suspend, HANDLES)), "it was not asked for yet"
    for refused, may in (((), ["JobSet"]), (("patch",), [])):
        refused_verbs.update(refused)
        assert await owners.repair()
        assert not await owners.repair(), "nothing changed"
        assert [handle.kind for handle in HANDLES if owners.may_suspend(handle)] == may


@pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle.kind)
def test_each_kind_has_its_field(handle: OwnerHandle) -> None:
    for suspend in (True, False):
        obj = msgspec.convert(
            {"metadata": {"name": "a"}, "spec": handle.spec(suspend=suspend)}, SuspendableObject
        )
        assert is_suspended(handle, obj) is suspend
    assert not is_suspended(handle, SuspendableObject())
    assert handle_of(f"{handle.group}/v9", handle.kind) is handle


async def test_a_leader_that_starts_asks_for_its_rights_and_has_more_work_preempted() -> None:
    bench = Bench()
    async with running_controllers(bench.requeuer):
        bench.requeuer.resync()
        await until(lambda: all(map(bench.requeuer.owners.may_suspend, HANDLES)) and bench.trigger.tasks)
