"""How preempted work is told until when it may go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.builders import make_job, make_pod
from support.controller_bench import RecordedEvents, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import FluxionJobId, Slot, SlotState
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.withdrawals import going_on
from fluxqueue.queue.requeue.preemption_notices import PreemptionNotices

AT = "2026-01-01T00:01:00Z"


class Bench:
    """A Job of two pods that is preempted, with a minute of grace."""

    def __init__(self, **changes: Any) -> None:
        state = RequeueState(stop_at=EPOCH + timedelta(seconds=60))
        settings = {
            "uid": "the-uid",
            "state": State.DRAINING,
            "reason": Reason.PREEMPTED,
            "jobid": 7,
            "requeue_state": state,
            **changes,
        }
        self.row = a_workload("mpi", **settings)
        self.ledger = RecordingLedger((self.row, an_allocation(["n0", "n1"])))
        self.server, self.events = MemoryApi(), RecordedEvents()
        caches = Caches(self.server.api)
        self.notices = PreemptionNotices(self.server.api, caches, self.ledger, self.events.recorder)
        subscribe(caches, self.ledger, self.notices)
        self.server.show_in(caches)
        self.server.put("jobs", make_job("mpi").indexed(2).uid("the-uid").build())
        for name, phase in (("mpi-0", "Running"), ("mpi-1", "Running"), ("mpi-2", "Failed")):
            owner = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "mpi",
                "uid": "the-uid",
                "controller": True,
            }
            pod = (
                make_pod(name).uid(name).on_node("n0").phase(phase).with_("metadata.ownerReferences", [owner])
            )
            self.server.put("pods", pod.build())

    def told(self, name: str) -> Any:
        return (
            self.server.get("pods", name)["metadata"].get("annotations", {}).get(names.PREEMPT_AT_ANNOTATION)
        )


async def test_each_running_pod_and_the_job_are_told_once() -> None:
    bench = Bench()
    bench.notices.resync()
    async with running_controllers(bench.notices):
        await until(lambda: bench.told("mpi-1") == AT)
    await bench.notices._tell(bench.row.id)
    assert [bench.told(f"mpi-{number}") for number in range(3)] == [AT, AT, None]
    assert (bench.events.reasons, len(bench.server.written("patch", "pods"))) == (["PreemptionNotice"], 2)


async def test_a_pod_that_is_gone_keeps_no_sibling_from_being_told() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "pods", 404, "NotFound")
    await bench.notices._tell(bench.row.id)
    assert sorted(str(bench.told(f"mpi-{number}")) for number in range(2)) == [AT, "None"]


async def test_work_whose_grace_is_over_is_told_nothing() -> None:
    bench = Bench()
    bench.ledger.now = EPOCH + timedelta(seconds=61)
    assert await bench.notices._tell(bench.row.id) is None
    assert (bench.events.events, bench.server.writes) == ([], [])


async def test_work_that_is_evicted_for_another_reason_is_told_nothing() -> None:
    bench = Bench(reason=Reason.NODES_UNAVAILABLE)
    assert await bench.notices._tell(bench.row.id) is None
    assert bench.server.writes == []


def goes_on(bench: Bench) -> None:
    """Let the Job of the bench go on, as a withdrawn preemption does."""
    (allocation,) = (each for _, each in bench.ledger.live())
    bench.ledger.put(going_on(bench.ledger.all()[0], allocation), allocation)


def withdrawable() -> Bench:
    state = RequeueState(stop_at=EPOCH + timedelta(seconds=60), preempted_for=9)
    bench = Bench(requeue_state=state, started_at=EPOCH)
    slots = (
        Slot(jobid=FluxionJobId(7), rank=n, node="n0", state=SlotState.TAKEN, pod_uid=f"mpi-{n}")
        for n in range(2)
    )
    bench.ledger.put(bench.row, replace(an_allocation(["n0", "n0"]), slots=tuple(slots)))
    return bench


async def test_work_that_goes_on_is_told_once_and_its_pods_have_no_time_any_more() -> None:
    bench = withdrawable()
    async with running_controllers(bench.notices):
        bench.notices.resync()
        await until(lambda: bench.told("mpi-1") == AT)
        goes_on(bench)
        await until(lambda: bench.told("mpi-1") is None and bench.told("mpi-0") is None)
        bench.notices.resync()
    assert bench.events.reasons == ["PreemptionNotice", "PreemptionWithdrawn"]


async def test_work_that_goes_on_is_told_why_if_this_process_knows() -> None:
    bench = withdrawable()
    await bench.notices._tell(bench.row.id)
    why = (
        "Job default/mpi goes on: Job default/urgent, for which it was to make room, waits for something else"
    )
    await bench.ledger.evict([], {}, {bench.row.id: why})
    await bench.notices._tell(bench.row.id)
    assert bench.events.events[-1][2] == why


async def test_another_leader_tells_pods_that_go_on_what_the_one_before_did_not() -> None:
    bench = withdrawable()
    for name in ("mpi-0", "mpi-1"):
        pod = bench.server.get("pods", name)
        pod["metadata"].setdefault("annotations", {})[names.PREEMPT_AT_ANNOTATION] = AT
        pod["metadata"].setdefault("labels", {})[names.JOBID_LABEL] = "7"
        bench.server.put("pods", pod)
    goes_on(bench)
    async with running_controllers(bench.notices):
        bench.notices.resync()
        await until(lambda: bench.told("mpi-1") is None and bench.told("mpi-0") is None)
    assert bench.events.reasons == ["PreemptionWithdrawn"]
    assert (
        bench.events.events[-1][2]
        == "Job default/mpi goes on: it is not to make room for other work any more"
    )
