"""How preempted work is told until when it may go on."""

from __future__ import annotations

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
from fluxqueue.queue.model.records import RequeueState
from fluxqueue.queue.requeue.preemption_notices import PreemptionNotices

AT = "2026-01-01T00:01:00Z"


class Bench:
    """A Job of two pods that is preempted, with a minute of grace."""

    def __init__(self, **changes: Any) -> None:
        state = RequeueState(stop_at=EPOCH + timedelta(seconds=60))
        settings = {"uid": "the-uid", "state": State.DRAINING, "reason": Reason.PREEMPTED, "jobid": 7, "requeue_state": state, **changes}
        self.row = a_workload("mpi", **settings)
        self.ledger = RecordingLedger((self.row, an_allocation(["n0", "n1"])))
        self.server, self.events = MemoryApi(), RecordedEvents()
        caches = Caches(self.server.api)
        self.notices = PreemptionNotices(self.server.api, caches, self.ledger, self.events.recorder)
        self.server.show_in(caches)
        self.server.put("jobs", make_job("mpi").indexed(2).uid("the-uid").build())
        for name, phase in (("mpi-0", "Running"), ("mpi-1", "Running"), ("mpi-2", "Failed")):
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "the-uid", "controller": True}
            pod = make_pod(name).uid(name).on_node("n0").phase(phase).with_("metadata.ownerReferences", [owner])
            self.server.put("pods", pod.build())

    def told(self, name: str) -> Any:
        return self.server.get("pods", name)["metadata"].get("annotations", {}).get(names.PREEMPT_AT_ANNOTATION)


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
