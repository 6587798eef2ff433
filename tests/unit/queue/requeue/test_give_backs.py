"""How the pods end that a running Job gives back."""

from __future__ import annotations

from datetime import timedelta

from support.builders import make_job, make_pod
from support.controller_bench import RecordedEvents, managed_caches, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import GivenBack, RequeueState, SlotState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.give_backs import GiveBacks
from fluxqueue.queue.requeue.pod_evictions import PodEvictor
from fluxqueue.queue.tasks.triggers import Trigger

FINALIZERS = ["example.com/mine", names.JOB_TRACKING_FINALIZER]
WORDS = "1 pod ends of the 3"


class Bench:
    """A Job of three pods that gives its last slot back."""

    def __init__(self, grace_s: int = 0) -> None:
        given = GivenBack(jobid=7, ranks=(2,), stop_at=EPOCH + timedelta(seconds=grace_s), message=WORDS)
        self.row = a_workload(
            "mpi", uid="the-uid", state=State.RUNNING, jobid=7, requeue_state=RequeueState(given_back=given), pods=3, hosts="n[0-2]"
        )
        uids = ["mpi-0", "mpi-1", "mpi-2"]
        self.ledger = RecordingLedger((self.row, an_allocation(["n0", "n1", "n2"], states=[SlotState.TAKEN] * 3, pods=uids)))
        self.server, self.events = MemoryApi(), RecordedEvents()
        caches = managed_caches(self.server)
        api = self.server.api
        gates = PodGates(api, self.ledger, caches.pods.get_by_uid)
        pods = PodEvictor(api, caches, self.ledger, Trigger(lambda _task: None), gates, lambda _uid: None)
        self.give_backs = GiveBacks(api, caches, self.ledger, pods, self.events.recorder)
        self.server.put("jobs", make_job("mpi").indexed(3).uid("the-uid").build())
        for name in uids:
            pod = make_pod(name).uid(name).on_node("n0").phase("Running").owned_by("Job", "mpi").with_("metadata.finalizers", FINALIZERS)
            self.server.put("pods", pod.build())

    def writes(self) -> list[tuple[str, str]]:
        return [(write.verb, write.name) for write in self.server.writes if write.resource == "pods"]


async def test_the_pod_of_a_slot_that_is_given_back_ends_and_counts_as_no_failure() -> None:
    bench = Bench()
    bench.give_backs.resync()
    async with running_controllers(bench.give_backs):
        await until(lambda: len(bench.writes()) >= 2)
    assert bench.writes() == [("patch", "mpi-2"), ("delete", "mpi-2")]
    assert bench.events.reasons == ["Shrunk"]
    await bench.give_backs._proceed(bench.row.id)
    assert (len(bench.writes()), bench.events.reasons) == (2, ["Shrunk"]), "once"


async def test_it_goes_on_until_the_grace_is_over_and_is_told() -> None:
    bench = Bench(grace_s=60)
    assert await bench.give_backs._proceed(bench.row.id) == 60.0
    told = bench.server.get("pods", "mpi-2")["metadata"]["annotations"]
    assert told == {names.PREEMPT_AT_ANNOTATION: "2026-01-01T00:01:00Z"}
    assert bench.writes() == [("patch", "mpi-2")]
    bench.ledger.now = EPOCH + timedelta(seconds=61)
    await bench.give_backs._proceed(bench.row.id)
    assert bench.writes()[-1] == ("delete", "mpi-2")


async def test_a_pod_that_changed_meanwhile_is_looked_at_again() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "pods", 409, "Conflict")
    assert await bench.give_backs._proceed(bench.row.id) == 2.0
    assert bench.writes() == [], "it may have succeeded"
    await bench.give_backs._proceed(bench.row.id)
    assert bench.writes() == [("patch", "mpi-2"), ("delete", "mpi-2")]


async def test_a_process_that_ended_between_both_writes_goes_on() -> None:
    bench = Bench()
    bench.server.fail_next("delete", "pods", 500, "InternalError")
    await bench.give_backs._proceed(bench.row.id)
    await bench.give_backs._proceed(bench.row.id)
    assert [verb for verb, _ in bench.writes()] == ["patch", "delete"]
