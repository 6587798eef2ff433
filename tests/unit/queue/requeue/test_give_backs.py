"""How the pods end that a running Job gives back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from support.builders import make_job, make_node, make_pod
from support.controller_bench import RecordedEvents, managed_caches, running_controllers, until
from support.gang_builders import read_object
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode, SlotState
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.evictions import evict_after_lost_node
from fluxqueue.queue.requeue.give_backs import GiveBacks
from fluxqueue.queue.requeue.pod_evictions import PodEvictor
from fluxqueue.queue.tasks.triggers import Trigger

FINALIZERS = ["example.com/mine", names.JOB_TRACKING_FINALIZER]
WORDS = "1 pod ends of the 3"


class Bench:
    """A Job of three pods that gives its last slot back."""

    def __init__(self, grace_s: int = 0, least: int = 1) -> None:
        jobspec = jobspec_of(
            "default/mpi", [SizedPods({"cpu": Decimal(1)}, 3)], duration_s=600, min_pods=least
        )
        given = GivenBack(jobid=7, ranks=(2,), stop_at=EPOCH + timedelta(seconds=grace_s), message=WORDS)
        row = a_workload(
            "mpi", uid="the-uid", state=State.RUNNING, jobid=7, jobspec=jobspec, pods=3, hosts="n[0-2]"
        )
        self.row = replace(row, requeue_state=RequeueState(given_back=given))
        uids = ["mpi-0", "mpi-1", "mpi-2"]
        self.ledger = RecordingLedger(
            (self.row, an_allocation(["n0", "n1", "n2"], states=[SlotState.TAKEN] * 3, pods=uids))
        )
        self.server, self.events = MemoryApi(), RecordedEvents()
        caches = managed_caches(self.server)
        api = self.server.api
        gates = PodGates(api, self.ledger, caches.pods.get_by_uid)
        pods = PodEvictor(api, caches, self.ledger, Trigger(lambda _task: None), gates, lambda _uid: None)
        subscribe(caches, self.ledger, pods)
        self.give_backs = GiveBacks(api, caches, self.ledger, pods, self.events.recorder)
        subscribe(caches, self.ledger, self.give_backs)
        self.server.put("nodes", make_node("n0").build())
        self.server.put("jobs", make_job("mpi").indexed(3).uid("the-uid").build())
        for name in uids:
            self.shows(name, "Running")

    def shows(self, name: str, phase: str) -> None:
        """Show a pod of the Job in a phase."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "the-uid", "controller": True}
        pod = make_pod(name).uid(name).on_node("n0").phase(phase).with_("metadata.ownerReferences", [owner])
        self.server.put("pods", pod.with_("metadata.finalizers", FINALIZERS).build())

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


async def test_a_pod_that_was_given_back_before_gets_no_further_grace() -> None:
    bench = Bench(grace_s=60)
    given = bench.row.requeue_state.given_back
    assert given is not None
    await bench.ledger.evict([], {bench.row.id: msgspec.structs.replace(given, ranks=(1, 2), due=(1,))})
    assert await bench.give_backs._proceed(bench.row.id) == 2.0
    assert sorted(bench.writes()) == [("delete", "mpi-1"), ("patch", "mpi-1"), ("patch", "mpi-2")]
    assert names.PREEMPT_AT_ANNOTATION in bench.server.get("pods", "mpi-2")["metadata"]["annotations"]
    assert await bench.give_backs._proceed(bench.row.id) == 60.0


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


async def test_what_is_given_back_outlives_a_state_that_was_made_before() -> None:
    bench = Bench()
    given = bench.row.requeue_state.given_back
    assert given is not None
    more = msgspec.structs.replace(given, ranks=(1, 2))
    await bench.ledger.evict([], {bench.row.id: more})
    await bench.ledger.set_requeue_states(
        {bench.row.id: msgspec.structs.replace(bench.row.requeue_state, time_limit=EPOCH)}
    )
    found = bench.ledger.get(bench.row.id)
    assert found is not None
    assert (found.requeue_state.given_back, found.requeue_state.time_limit) == (more, EPOCH)
    await bench.ledger.evict([evict_after_lost_node(bench.row, ["n0"], EPOCH)])
    assert (lost := bench.ledger.get(bench.row.id)) is not None
    assert (lost.evicting, lost.requeue_state.given_back) == (True, more)


async def test_a_job_that_does_not_run_there_any_more_gives_nothing_back() -> None:
    bench = Bench()
    other = GivenBack(jobid=8, ranks=(0,), stop_at=EPOCH, message=WORDS)
    await bench.ledger.evict([], {bench.row.id: other})
    assert bench.ledger.get(bench.row.id) == bench.row


async def test_a_job_of_which_other_pods_failed_meanwhile_keeps_its_least() -> None:
    bench = Bench(least=2)
    bench.shows("mpi-0", "Failed")
    assert await bench.give_backs._proceed(bench.row.id) == 2.0
    assert bench.writes() == []
    bench.shows("mpi-0", "Running")
    await bench.give_backs._proceed(bench.row.id)
    assert bench.writes() == [("patch", "mpi-2"), ("delete", "mpi-2")]


async def test_a_pod_by_which_it_grew_and_that_ends_too_does_not_count_for_its_least() -> None:
    bench = Bench(least=2)
    bench.shows("mpi-1", "Failed")
    bench.shows("mpi-3", "Running")
    grown = a_workload(
        "mpi-3", uid="mpi-3", kind="Pod", state=State.DRAINING, reason=Reason.PREEMPTED, jobid=8
    )
    bench.ledger.put(grown, an_allocation(["n0"], jobid=8, states=[SlotState.TAKEN], pods=["mpi-3"]))
    assert await bench.give_backs._proceed(bench.row.id) == 2.0
    assert bench.writes() == []
    bench.ledger.put(replace(grown, state=State.RUNNING, reason=Reason.NONE))
    await bench.give_backs._proceed(bench.row.id)
    assert bench.writes() == [("patch", "mpi-2"), ("delete", "mpi-2")]


async def test_a_pod_that_is_not_counted_any_more_ends_in_any_case() -> None:
    bench = Bench(least=2)
    bench.server.fail_next("delete", "pods", 500, "InternalError")
    await bench.give_backs._proceed(bench.row.id)
    bench.shows("mpi-0", "Failed")
    await bench.give_backs._proceed(bench.row.id)
    assert [verb for verb, _ in bench.writes()] == ["patch", "delete"]


async def test_what_was_given_back_before_is_not_told_again() -> None:
    bench = Bench()
    await bench.ledger.end_slots([(FluxionJobId(7), 2)])
    bench.give_backs.workload_changed(bench.row.id)
    assert await bench.give_backs._proceed(bench.row.id) is None
    assert bench.events.reasons == []


async def test_a_job_that_gives_only_pods_back_by_which_it_grew_says_so_while_they_end() -> None:
    bench = Bench()
    given = bench.row.requeue_state.given_back
    assert given is not None
    only_grown = RequeueState(given_back=msgspec.structs.replace(given, ranks=()))
    bench.ledger.put(replace(bench.row, requeue_state=only_grown))
    bench.shows("mpi-3", "Running")
    grown = a_workload("mpi-3", uid="mpi-3", kind="Pod", state=State.RUNNING, jobid=8)
    bench.ledger.put(grown, an_allocation(["n0"], jobid=8, states=[SlotState.TAKEN], pods=["mpi-3"]))
    await bench.give_backs._proceed(bench.row.id)
    assert bench.events.reasons == [], "it has ended, and a former leader has said it"
    bench.ledger.put(replace(grown, state=State.DRAINING, reason=Reason.PREEMPTED))
    bench.give_backs.workload_changed(bench.row.id)
    async with running_controllers(bench.give_backs):
        await until(lambda: bench.events.reasons == ["Shrunk"])
    assert bench.writes() == []


async def test_of_a_minicluster_the_highest_ranks_end_and_its_smallest_size_stays() -> None:
    bench = Bench()
    spec = {"size": 3, "minSize": 2, "containers": [{"image": "x"}]}
    bench.server.put("miniclusters", {"metadata": {"name": "mpi", "uid": "m"}, "spec": spec})
    owner = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "mpi", "uid": "m"}
    job = make_job("mpi").indexed(3).uid("the-uid")
    bench.server.put("jobs", job.with_("metadata.ownerReferences", [owner | {"controller": True}]).build())
    given = bench.row.requeue_state.given_back
    assert given is not None
    await bench.ledger.evict([], {bench.row.id: msgspec.structs.replace(given, ranks=(1, 2))})
    await bench.give_backs._proceed(bench.row.id)
    assert bench.writes() == [("patch", "mpi-2"), ("delete", "mpi-2")], "two of the three stay"


async def test_workers_of_a_gang_are_evicted_and_as_many_stay_as_their_group_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    row = replace(
        bench.row, kind="RayCluster", api_version="ray.io/v1", release_mode=ReleaseMode.GROUP, uid="group-x"
    )
    given = row.requeue_state.given_back
    assert given is not None
    row = replace(row, requeue_state=RequeueState(given_back=msgspec.structs.replace(given, ranks=(1, 2))))
    uids = ["mpi-0", "mpi-1", "mpi-2"]
    ledger = RecordingLedger((row, an_allocation(["n0"] * 3, states=[SlotState.TAKEN] * 3, pods=uids)))
    caches = bench.give_backs._caches
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "mpi", "uid": "x", "controller": True}
    for name in uids:
        worker = make_pod(name).uid(name).on_node("n0").phase("Running").label("ray.io/group", "small")
        bench.server.put("pods", worker.with_("metadata.ownerReferences", [owner]).build())
    group = {"groupName": "small", "replicas": 3, "minReplicas": 2}
    obj = read_object(RAY_CLUSTERS, {"workerGroupSpecs": [group]}, name="mpi")

    def find(*_of: object) -> Lookup:
        return Lookup(Readable.YES, obj)

    monkeypatch.setattr(caches.gang_objects, "find", find)
    give_backs = GiveBacks(bench.server.api, caches, ledger, bench.give_backs._pods, bench.events.recorder)
    assert await give_backs._proceed(row.id) == 2.0
    left = sorted(each["metadata"]["name"] for each in bench.server.all("pods"))
    assert left == uids[:2]
    assert bench.events.reasons == ["Shrunk"] * len(bench.events.reasons) != []
