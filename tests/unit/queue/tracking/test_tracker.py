"""What the tracker stores, patches and hands on as the pods of released work come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import JobBuilder, PodBuilder, make_job, make_pod
from support.controller_bench import TriggerLog, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Outcome, Reason, State, fluxjob_name
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    ReleaseMode,
    Workload,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.tasks import rests
from fluxqueue.queue.tracking import tracker
from fluxqueue.queue.tracking.slot_changes import SlotChanges
from fluxqueue.queue.tracking.tracker import Tracker

JOB = make_job("mpi").indexed(2).uid("uid-of-mpi").suspended(False).label("fluxqueue/jobid", "7")


def pod(name: str, index: int, node: str = "", phase: str = "Pending") -> PodBuilder:
    builder = make_pod(name).uid(name).index(index).owned_by("Job", "mpi").phase(phase)
    return builder.on_node(node) if node else builder.gate("fluxqueue")


class Bench:
    """A released Job of two pods, in slots 0 and 1 on nodes n0 and n1."""

    def __init__(self, job: JobBuilder = JOB, *, released: bool = True) -> None:
        self.row = a_workload(
            "mpi", uid="uid-of-mpi", state=State.ALLOCATED, release_mode=ReleaseMode.GATE, pods=2, jobid=7
        )
        allocation = an_allocation(["n0", "n1"])
        self.ledger = RecordingLedger(
            (self.row, allocation if released else replace(allocation, released_at=None))
        )
        self.server, self.trigger = MemoryApi(), TriggerLog()
        self.caches = Caches(self.server.api)
        self.gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.reread: list[str] = []
        self.evicted: list[Eviction] = []
        self.tracker = Tracker(
            self.server.api,
            self.caches,
            self.ledger,
            self.trigger.trigger,
            self.gates,
            self.reread.append,
            self._evict,
            grace_s=30,
        )
        subscribe(self.caches, self.ledger, self.tracker)
        self.server.show_in(self.caches)
        for node in ("n0", "n1"):
            self.server.put(
                "nodes",
                {"metadata": {"name": node}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            )
        self.server.put("jobs", job.build())

    async def _evict(self, evictions: Sequence[Eviction]) -> None:
        self.evicted += evictions

    def put(self, *pods: PodBuilder) -> None:
        for each in pods:
            self.server.put("pods", each.build())

    def released(self) -> list[str]:
        return [write.name for write in self.server.written("patch", "pods")]


async def test_a_gated_pod_is_stored_in_its_slot_before_its_gate_is_removed() -> None:
    bench = Bench()
    bench.put(pod("mpi-0", 0), pod("mpi-1", 1))
    async with running_controllers(bench.tracker):
        await until(lambda: len(bench.released()) == 2)
    assert [(slot.rank, slot.pod_uid) for slot in bench.ledger.written("take_slots")] == [
        (0, "mpi-0"),
        (1, "mpi-1"),
    ]
    patched = bench.server.get("pods", "mpi-1")
    assert not patched["spec"].get("schedulingGates")
    assert patched["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n1"


async def test_pods_that_are_released_together_are_counted_once_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    counted: list[int] = []

    def size(*_now: object) -> int:
        counted.append(1)
        return 2

    monkeypatch.setattr(bench.gates, "gang_size", size)
    bench.put(pod("mpi-0", 0), pod("mpi-1", 1))
    async with running_controllers(bench.tracker):
        await until(lambda: len(bench.released()) == 2)
    assert len(counted) == 1
    assert bench.server.get("pods", "mpi-0")["metadata"]["annotations"]["fluxqueue/gang-size"] == "2"


async def test_all_pods_of_a_large_gang_are_released_with_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, count = Bench(JOB.indexed(300)), 300
    bench.ledger.put(replace(bench.row, pods=count), an_allocation([f"n{rank % 2}" for rank in range(count)]))
    monkeypatch.setattr(bench.tracker._rests, "_of_pod_s", 1_000)
    bench.put(*(pod(f"mpi-{index}", index) for index in range(count)))
    async with running_controllers(bench.tracker):
        await until(lambda: len(bench.released()) == count)
    assert bench.released()[:16] == [f"mpi-{index}" for index in range(16)]


async def test_changes_of_a_pod_that_do_not_concern_its_slot_cause_no_plan() -> None:
    bench = Bench()
    running = pod("mpi-0", 0, "n0", "Running")
    bench.put(running)
    bench.tracker._keys._keys.clear()
    bench.put(running.with_("status.conditions", [{"type": "Ready", "status": "True"}]))
    assert not bench.tracker._keys
    for change in (running.label("a", "b"), running.phase("Succeeded")):
        bench.put(change)
        assert list(bench.tracker._keys._keys) == [bench.row.id]
        bench.tracker._keys._keys.clear()


async def test_the_pods_of_a_gang_take_half_of_the_calls_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    under_way: list[int] = []
    now = 0

    async def remove(*_due: object) -> None:
        nonlocal now
        now += 1
        under_way.append(now)
        await asyncio.sleep(0)
        now -= 1

    monkeypatch.setattr(bench.gates, "_remove", remove)
    due = a_pod(pod("mpi-0", 0), uid="mpi-0")
    await asyncio.gather(
        *(bench.gates.remove(bench.row, an_allocation(["n0"]), 0, due, 1) for _ in range(100))
    )
    assert len(under_way) == 100
    assert max(under_way) == 16


async def test_a_large_gang_rests_between_its_plans_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    small = a_workload(
        "one", kind="Pod", uid="one", state=State.RUNNING, release_mode=ReleaseMode.POD, jobid=8
    )
    bench.ledger.put(small, an_allocation(["n0"], jobid=8, pods=["one"]))
    monkeypatch.setattr(bench.tracker._rests, "_of_pod_s", 1_000)
    planned: list[str] = []
    plan = bench.tracker._plan

    async def note(workload: Workload, allocation: Allocation) -> SlotChanges | None:
        planned.append(workload.name)
        return await plan(workload, allocation)

    monkeypatch.setattr(bench.tracker, "_plan", note)
    monkeypatch.setattr(rests, "_SHORT_S", 1_500)
    async with running_controllers(bench.tracker):
        await until(lambda: "one" in planned and "mpi" in planned)
        planned.clear()
        bench.put(pod("mpi-0", 0), make_pod("one").uid("one").on_node("n0").phase("Succeeded"))
        await until(lambda: bench.ledger.get(small.id) is None)
        assert "mpi" not in planned
        bench.tracker._rests._until.clear()  # its rest is over
        bench.put(pod("mpi-1", 1))
        await until(lambda: "mpi" in planned)


async def test_the_leading_broker_of_a_flux_cluster_is_released_before_its_followers() -> None:
    bench = Bench()
    flux = "fluxqueue/minicluster"
    bench.put(pod("mpi-1", 1).annotation(flux, "true"), pod("mpi-0", 0).annotation(flux, "true"))
    async with running_controllers(bench.tracker):
        await until(lambda: len(bench.released()) == 2)
    assert bench.released() == ["mpi-0", "mpi-1"]


async def test_a_pod_that_is_being_withdrawn_is_not_released_until_that_is_done() -> None:
    bench = Bench()
    bench.put(pod("mpi-0", 0))
    with bench.gates.kept_for_withdrawal(bench.caches.pods.list()):
        async with running_controllers(bench.tracker):
            await until(lambda: bench.ledger.written("take_slots"))
        assert bench.released() == []
    async with running_controllers(bench.tracker):
        await until(lambda: bench.released() == ["mpi-0"])


async def test_a_release_that_conflicts_is_repeated() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "pods", 409, "Conflict")
    bench.put(pod("mpi-0", 0))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.released() == ["mpi-0"])


async def test_a_job_runs_once_all_its_pods_are_bound_and_ends_with_them() -> None:
    bench = Bench()
    bench.put(pod("mpi-0", 0, "n0", "Running"), pod("mpi-1", 1, "n1", "Running"))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("mark_started") == [bench.row.id])
        done = [{"type": "Complete", "status": "True"}]
        bench.put(pod("mpi-0", 0, "n0", "Succeeded"), pod("mpi-1", 1, "n1", "Succeeded"))
        bench.server.put("jobs", JOB.with_("status.conditions", done).build())
        await until(lambda: bench.ledger.written("finish"))
        await until(lambda: "schedule" in bench.trigger.tasks)
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.COMPLETED, Outcome.SUCCEEDED)


async def test_the_slot_of_an_index_that_succeeded_ends_while_its_sibling_runs() -> None:
    bench = Bench()
    bench.put(pod("mpi-0", 0, "n0", "Succeeded"), pod("mpi-1", 1, "n1", "Running"))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("end_slots"))
    assert bench.ledger.written("end_slots") == [(7, 0)]
    assert bench.ledger.written("finish") == []


async def test_a_job_that_was_deleted_complete_ends_well() -> None:
    bench = Bench()
    async with running_controllers(bench.tracker):
        bench.server.put(
            "jobs", JOB.with_("status.conditions", [{"type": "Complete", "status": "True"}]).build()
        )
        bench.server.pause()
        bench.server.remove("jobs", "mpi")
        bench.server.resume()
        await until(lambda: bench.ledger.written("finish"))
    assert bench.ledger.written("finish")[0].state is State.COMPLETED


async def test_a_job_that_its_user_suspends_is_evicted_and_its_slots_stay() -> None:
    bench = Bench(JOB.suspended())
    async with running_controllers(bench.tracker):
        await until(lambda: bench.evicted)
    assert (bench.evicted[0].workload, bench.evicted[0].reason) == (bench.row.id, Reason.USER_SUSPENDED)
    assert bench.ledger.writes == []


async def test_a_job_that_is_suspended_because_it_is_cancelled_is_not_evicted() -> None:
    bench = Bench(JOB.suspended())
    spec = {"objectRef": {"kind": "Job", "name": "mpi", "uid": "uid-of-mpi"}, "cancel": True}
    bench.server.put(
        "fluxjobs", {"metadata": {"name": fluxjob_name("Job", "mpi", "uid-of-mpi")}, "spec": spec}
    )
    allocation = bench.ledger.allocation(bench.row.id)
    assert allocation is not None
    assert await bench.tracker._jobs.plan(bench.row, allocation) is None
    assert bench.evicted == []


async def test_a_job_without_slots_that_is_suspended_is_evicted() -> None:
    bench = Bench(JOB.suspended())
    await bench.ledger.end_slots([(FluxionJobId(7), 0), (FluxionJobId(7), 1)])
    async with running_controllers(bench.tracker):
        await until(lambda: bench.evicted)
    assert (bench.evicted[0].workload, bench.evicted[0].reason) == (bench.row.id, Reason.USER_SUSPENDED)


async def test_a_job_without_slots_that_is_scaled_to_zero_is_evicted() -> None:
    bench = Bench(JOB.with_("spec.parallelism", 0))
    await bench.ledger.end_slots([(FluxionJobId(7), 0), (FluxionJobId(7), 1)])
    async with running_controllers(bench.tracker):
        await until(lambda: bench.evicted)
    assert "has spec.parallelism 0" in bench.evicted[0].message


async def test_a_job_whose_template_holds_a_node_is_evicted_before_its_slot_is_freed() -> None:
    """Once its slot were free, a pod that comes when it is scaled up again would still come to the node."""
    held = (
        make_job("mpi")
        .uid("uid-of-mpi")
        .suspended(False)
        .label("fluxqueue/jobid", "7")
        .pod_label("fluxqueue/pinned", "yes")
    )
    bench = Bench(held)
    bench.put(pod("mpi-0", 0, "n0", "Running"))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("take_slots"))
        bench.server.put("jobs", held.with_("spec.parallelism", 0).build())
        bench.put(pod("mpi-0", 0, "n0", "Failed"))
        await until(lambda: bench.evicted)
    assert "has spec.parallelism 0" in bench.evicted[0].message
    assert bench.ledger.written("end_slots") == []


async def test_a_job_whose_template_holds_a_node_keeps_its_slot_between_its_pods() -> None:
    held = (
        make_job("mpi")
        .uid("uid-of-mpi")
        .pods(1, 3)
        .suspended(False)
        .label("fluxqueue/jobid", "7")
        .pod_label("fluxqueue/pinned", "yes")
    )
    bench = Bench(held)
    bench.ledger.now = EPOCH + timedelta(days=1)
    bench.put(pod("mpi-0", 0, "n0", "Running"))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("take_slots"))
        bench.put(pod("mpi-0", 0, "n0", "Succeeded"))
        await until(lambda: bench.ledger.written("vacate_slots"))
        bench.put(
            make_pod("mpi-1")
            .uid("mpi-1")
            .owned_by("Job", "mpi")
            .allocation("n0")
            .label("fluxqueue/pinned", "yes")
        )
        await until(lambda: len(bench.ledger.written("take_slots")) == 2)
    assert [slot.pod_uid for slot in bench.ledger.written("take_slots")] == ["mpi-0", "mpi-1"]


async def test_a_gated_pod_beyond_the_slots_is_read_again_by_the_intake() -> None:
    bench = Bench(make_job("mpi").indexed(3).uid("uid-of-mpi").suspended(False).label("fluxqueue/jobid", "7"))
    bench.put(pod("mpi-0", 0, "n0", "Running"), pod("mpi-1", 1, "n1", "Running"), pod("mpi-2", 2))
    async with running_controllers(bench.tracker):
        await until(lambda: "mpi-2" in bench.reread)
    assert bench.released() == []


async def test_work_that_is_not_released_yet_is_left_alone() -> None:
    bench = Bench(released=False)
    bench.put(pod("mpi-0", 0))
    await bench.tracker._track([bench.row.id])
    assert (bench.ledger.writes, bench.server.writes) == ([], [])


async def test_a_job_that_its_queue_ended_at_its_limit_has_that_outcome() -> None:
    failed = JOB.with_("status.conditions", [{"type": "Failed", "status": "True"}])
    bench = Bench(failed)
    limited = RequeueState(time_limit=EPOCH)
    row = replace(bench.row, state=State.RUNNING, started_at=EPOCH, requeue_state=limited)
    bench.ledger.put(row, bench.ledger.allocation(row.id))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.FAILED, Outcome.TIME_LIMIT)


async def test_what_nobody_waits_for_is_stored_together_and_what_a_cycle_left_waiting_hurries_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracker, "_COLLECTED_S", 3600.0)
    bench = Bench()
    bench.ledger.put(replace(bench.row, release_mode=ReleaseMode.PIN), an_allocation(["n0", "n1"]))
    bench.put(pod("mpi-0", 0, "n0", "Running"), pod("mpi-1", 1, "n1", "Running"))
    async with running_controllers(bench.tracker):
        await until(lambda: bench.ledger.written("mark_started"))
        bench.put(pod("mpi-0", 0, "n0", "Succeeded"))
        await asyncio.sleep(0.05)
        assert bench.ledger.written("end_slots") == []
        bench.ledger.put(a_workload("next", reason=Reason.WAITING_FOR_NODES))
        await until(lambda: bench.ledger.written("end_slots"))


def released_pin(bench: Bench) -> None:
    """The pods of the Job come with their nodes, and its release is not stored."""
    bench.ledger.put(
        replace(bench.row, release_mode=ReleaseMode.PIN),
        replace(an_allocation(["n0", "n1"]), released_at=None),
    )


async def test_a_release_is_stored_with_the_start_of_its_pods() -> None:
    bench = Bench(released=False)
    released_pin(bench)
    async with running_controllers(bench.tracker):
        await bench.ledger.note_released([FluxionJobId(7)])
        bench.put(pod("mpi-0", 0, "n0", "Running"), pod("mpi-1", 1, "n1", "Running"))
        assert bench.ledger.releasing(FluxionJobId(7))
        await until(lambda: bench.ledger.written("mark_started"))
    assert [name for name, _ in bench.ledger.writes if name.startswith("mark_")] == [
        "mark_released",
        "mark_started",
    ]
    allocation = bench.ledger.allocation(bench.row.id)
    assert allocation is not None
    assert allocation.released_at is not None
    assert not bench.ledger.releasing(FluxionJobId(7))


async def test_a_workload_that_cannot_be_tracked_keeps_no_release_from_being_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(released=False)
    released_pin(bench)

    async def fail(*_args: object) -> None:
        raise ValueError("a slot that nobody expects")

    monkeypatch.setattr(bench.tracker, "_plan", fail)
    async with running_controllers(bench.tracker):
        await bench.ledger.note_released([FluxionJobId(7)])
        await until(lambda: not bench.ledger.releasing(FluxionJobId(7)))
    assert bench.ledger.written("mark_released") == [7]


async def test_a_large_workload_that_cannot_be_tracked_is_tried_again_and_does_not_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracker, "_REST_OF_SLOT_S", 3600.0)
    bench, tries = Bench(), list[None]()

    async def fail(*_args: object) -> None:
        tries.append(None)
        raise ValueError("a slot that nobody expects")

    monkeypatch.setattr(bench.tracker, "_plan", fail)
    async with running_controllers(bench.tracker):
        await until(lambda: len(tries) > 1)


async def test_a_job_that_is_deleted_before_its_release_is_stored_keeps_its_nodes_while_its_pods_run() -> (
    None
):
    bench = Bench(released=False)
    released_pin(bench)
    bench.put(pod("mpi-0", 0, "n0", "Running"), pod("mpi-1", 1, "n1", "Running"))
    async with running_controllers(bench.tracker):
        await bench.ledger.note_released([FluxionJobId(7)])
        bench.server.put("jobs", JOB.with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z").build())
        await until(lambda: bench.ledger.written("mark_released"))
        assert (bench.ledger.written("end_slots"), bench.ledger.written("finish")) == ([], [])
        bench.server.remove("jobs", "mpi")
        await until(lambda: bench.ledger.written("finish"))


async def test_the_slot_of_a_pod_that_the_scheduler_refuses_is_stored_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracker, "_COLLECTED_S", 3600.0)
    monkeypatch.setattr(
        tracker, "refusal", lambda pod: "Insufficient cpu" if pod.metadata.name == "mpi-1" else ""
    )
    bench = Bench(released=False)
    released_pin(bench)
    async with running_controllers(bench.tracker):
        await until(lambda: not len(bench.tracker._keys))
        await bench.ledger.note_released([FluxionJobId(7)])
        bench.put(make_pod("mpi-0").uid("mpi-0").index(0).owned_by("Job", "mpi").phase("Pending"))
        await asyncio.sleep(0.05)
        assert bench.ledger.written("take_slots") == []
        bench.put(make_pod("mpi-1").uid("mpi-1").index(1).owned_by("Job", "mpi").phase("Pending"))
        await until(lambda: bench.ledger.written("take_slots"))
    assert bench.ledger.written("mark_released") == [7]
