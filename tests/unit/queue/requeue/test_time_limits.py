"""How work is warned and ended at the end of its duration."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from support.builders import make_job, make_pod
from support.controller_bench import running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.kube.events import EventRecorder
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.groups import POD_GROUP
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.time_limits import is_over_time_limit, over_limit_message
from fluxqueue.queue.requeue.time_limits import TimeLimits

LIMITED = RequeueState(time_limit=EPOCH + timedelta(seconds=60))
QUEUE = {"metadata": {"name": "default"}, "spec": {"enforceDuration": {"enabled": True, "graceSeconds": 20}}}
JOB = make_job("mpi").indexed(2).uid("the-uid").with_("status.startTime", "2026-01-01T00:00:00Z")


class _Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def record(self, _subject: object, reason: str, _message: str, **_how: object) -> None:
        self.events.append(reason)


class Bench:
    """A running workload of 60 s that started at the epoch, in a queue that ends work 60 s after its
    start.
    """

    def __init__(self, row: Workload, at_s: float, **objects: Any) -> None:
        self.row = row
        self.ledger = RecordingLedger((row, an_allocation(["n0", "n1"])))
        self.ledger.now = EPOCH + timedelta(seconds=at_s)
        self.server, self.recorder = MemoryApi(), _Recorder()
        self.caches = Caches(self.server.api)
        self.limits = TimeLimits(
            self.server.api, self.caches, self.ledger, cast(EventRecorder, self.recorder)
        )
        subscribe(self.caches, self.ledger, self.limits)
        self.server.show_in(self.caches)
        self.server.put("fluxqueues", objects.pop("queue", QUEUE))
        for plural, builders in objects.items():
            for builder in builders:
                self.server.put(plural, builder.build())

    @property
    def stored(self) -> bool:
        now = self.ledger.get(self.row.id)
        return now is not None and is_over_time_limit(now)

    def deadline(self, name: str = "mpi") -> Any:
        return self.server.get("jobs", name)["spec"].get("activeDeadlineSeconds")

    @property
    def deleted(self) -> list[str]:
        return sorted(each.name for each in self.server.written("delete", "pods"))


def a_row(**changes: Any) -> Workload:
    return a_workload(
        "mpi", **{"uid": "the-uid", "state": State.RUNNING, "jobid": 7, "started_at": EPOCH, **changes}
    )


def a_pod_row(**changes: Any) -> Workload:
    return a_row(kind="Pod", api_version="v1", release_mode=ReleaseMode.POD, **changes)


def a_group_row(**changes: Any) -> Workload:
    return a_row(kind=POD_GROUP, release_mode=ReleaseMode.GROUP, **changes)


def member(name: str) -> Any:
    return make_pod(name).uid(name).label(names.POD_GROUP_LABEL, "mpi").on_node("n0").phase("Running")


async def test_a_job_at_its_limit_gets_a_deadline_that_has_passed_after_that_is_stored() -> None:
    bench = Bench(a_row(), 61, jobs=[JOB])
    async with running_controllers(bench.limits):
        await until(lambda: bench.deadline() is not None)
    assert (bench.stored, bench.deadline(), bench.recorder.events) == (True, 61, ["TimeLimit"])


async def test_what_is_stored_is_carried_out_again_by_the_next_leader() -> None:
    bench = Bench(a_row(requeue_state=LIMITED), 70, jobs=[JOB], queue={"metadata": {"name": "other"}})
    bench.limits.resync()
    async with running_controllers(bench.limits):
        await until(lambda: bench.deadline() is not None)
    assert bench.ledger.written("set_requeue_states") == []


async def test_a_conflict_is_tried_again() -> None:
    bench = Bench(a_row(requeue_state=LIMITED), 70, jobs=[JOB])
    bench.server.fail_next("patch", "jobs", 409, "Conflict")
    bench.limits.resync()
    async with running_controllers(bench.limits):
        await until(lambda: bench.deadline() is not None)


@pytest.mark.parametrize(
    "job",
    [
        JOB.with_("spec.activeDeadlineSeconds", 60),
        JOB.suspended(),
        JOB.with_("status.conditions", [{"type": "Complete", "status": "True"}]),
    ],
    ids=["ends already", "suspended", "finished"],
)
async def test_a_job_that_ends_anyway_is_left_alone(job: Any) -> None:
    bench = Bench(a_row(requeue_state=LIMITED), 70, jobs=[job])
    assert await bench.limits._check(bench.row.id) is None
    assert bench.server.writes == []


async def test_work_is_warned_once_and_checked_again_at_its_limit() -> None:
    bench = Bench(a_row(), 45, jobs=[JOB])
    assert await bench.limits._check(bench.row.id) == pytest.approx(15)
    assert await bench.limits._check(bench.row.id) == pytest.approx(15)
    assert (bench.recorder.events, bench.stored) == (["TimeLimitNear"], False)


async def test_work_far_from_its_limit_is_checked_when_it_is_warned() -> None:
    bench = Bench(a_row(), 10, jobs=[JOB])
    assert await bench.limits._check(bench.row.id) == pytest.approx(30)
    assert bench.recorder.events == []


async def test_a_queue_that_does_not_ask_for_it_ends_nothing() -> None:
    bench = Bench(a_row(), 100, jobs=[JOB], queue={"metadata": {"name": "default"}, "spec": {}})
    assert await bench.limits._check(bench.row.id) is None
    assert not bench.stored


async def test_a_queue_that_asks_for_it_later_ends_what_runs() -> None:
    bench = Bench(a_row(), 100, jobs=[JOB], queue={"metadata": {"name": "default"}, "spec": {}})
    async with running_controllers(bench.limits):
        bench.server.put("fluxqueues", QUEUE)
        await until(lambda: bench.deadline() is not None)


async def test_a_bare_pod_is_deleted_by_its_uid() -> None:
    bench = Bench(a_pod_row(), 61, pods=[make_pod("mpi").uid("the-uid").on_node("n0").phase("Running")])
    bench.limits.resync()
    async with running_controllers(bench.limits):
        await until(lambda: bench.deleted)
    (deleted,) = bench.server.written("delete", "pods")
    assert (deleted.body["preconditions"], bench.stored) == ({"uid": "the-uid"}, True)


async def test_a_pod_that_its_owner_would_create_again_has_no_limit() -> None:
    pod = make_pod("mpi").uid("the-uid").owned_by("ReplicaSet").on_node("n0").phase("Running")
    bench = Bench(a_pod_row(), 61, pods=[pod])
    assert await bench.limits._check(bench.row.id) is None
    assert not bench.stored


@pytest.mark.parametrize(("policy", "ended"), [("Never", True), ("OnFailure", True), ("Always", False)])
async def test_a_named_owner_keeps_no_pod_that_ends_by_itself_from_its_limit(
    policy: str, ended: bool
) -> None:
    """Everybody may write any owner into a pod."""
    pod = (
        make_pod("mpi")
        .uid("the-uid")
        .owned_by("ConfigMap")
        .with_("spec.restartPolicy", policy)
        .on_node("n0")
        .phase("Running")
    )
    bench = Bench(a_pod_row(), 61, pods=[pod])
    await bench.limits._check(bench.row.id)
    assert bench.stored is ended
    group = [member(name).owned_by("ConfigMap").with_("spec.restartPolicy", policy) for name in ("a", "b")]
    bench = Bench(a_group_row(requeue_state=LIMITED), 61, pods=group)
    await bench.limits._check(bench.row.id)
    assert bench.deleted == (["a", "b"] if ended else [])


async def test_only_the_pod_of_a_job_that_runs_ends_with_its_job() -> None:
    """A pod may name a Job that has finished, which ends nothing any more, or one of another project."""
    pod = (
        make_pod("mpi")
        .uid("the-uid")
        .owned_by("Job")
        .with_("spec.restartPolicy", "Never")
        .on_node("n0")
        .phase("Running")
    )
    running = make_job("owner").uid("uid-of-owner").suspended(False)
    complete = [{"type": "Complete", "status": "True"}]
    for jobs, ended in (
        ([running], False),
        ([running.with_("status.conditions", complete)], True),
        ([], True),
    ):
        bench = Bench(a_pod_row(), 61, jobs=jobs, pods=[pod])
        await bench.limits._check(bench.row.id)
        assert bench.stored is ended


async def test_all_pods_of_a_group_are_deleted_and_no_others() -> None:
    other = (
        make_pod("other").uid("other").label(names.POD_GROUP_LABEL, "another").on_node("n0").phase("Running")
    )
    bench = Bench(
        a_group_row(), 61, pods=[member("a"), member("b"), member("done").phase("Succeeded"), other]
    )
    bench.limits.resync()
    async with running_controllers(bench.limits):
        await until(lambda: len(bench.deleted) == 2)
    assert bench.deleted == ["a", "b"]


EVICTED = {"state": State.DRAINING, "reason": Reason.PREEMPTED}
GOING = "2026-01-01T00:00:50Z"


async def test_work_that_is_evicted_and_goes_on_is_ended_at_its_limit() -> None:
    bench = Bench(a_group_row(**EVICTED), 61, pods=[member("a"), member("b")])
    async with running_controllers(bench.limits):
        bench.limits.resync()
        await until(lambda: bench.deleted == ["a", "b"])
    assert bench.stored


@pytest.mark.parametrize(
    ("row", "pods"),
    [
        pytest.param(a_row(**EVICTED), [], id="a Job is suspended"),
        pytest.param(
            a_group_row(**EVICTED),
            [member("a").with_("metadata.deletionTimestamp", GOING)],
            id="its pods end",
        ),
        pytest.param(
            a_group_row(**EVICTED), [member("a").owned_by("StatefulSet")], id="its owner creates them again"
        ),
        pytest.param(a_pod_row(**EVICTED), [], id="its pod is gone"),
    ],
)
async def test_evicted_work_that_its_limit_would_not_end_waits_again(row: Workload, pods: list[Any]) -> None:
    bench = Bench(row, 61, jobs=[JOB], pods=pods)
    await bench.limits._check(row.id)
    assert (bench.stored, bench.deleted, bench.deadline()) == (False, [], None)


async def test_work_that_was_idle_in_an_earlier_start_and_reaches_its_limit_says_so() -> None:
    former = RequeueState(time_limit=EPOCH - timedelta(seconds=60), idle="idle since noon")
    bench = Bench(a_row(requeue_state=former), 61, jobs=[JOB])
    await bench.limits._check(bench.row.id)
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    assert over_limit_message(row).startswith("Job default/mpi reached its time limit of 60 s")


async def test_work_that_is_idle_is_ended_as_at_its_limit() -> None:
    bench = Bench(a_row(duration_s=None), 50, jobs=[JOB], queue={"metadata": {"name": "other"}})
    async with running_controllers(bench.limits):
        await bench.limits.end_idle(bench.row, "idle since noon")
        await until(lambda: bench.deadline() is not None)
    assert (bench.stored, bench.recorder.events) == (True, ["TimeLimit"])


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"state": State.PENDING, "started_at": None, "jobid": None},
        {"state": State.DRAINING, "reason": Reason.PREEMPTED},
        {"started_at": EPOCH + timedelta(seconds=40)},
    ],
)
async def test_work_that_stops_or_started_again_meanwhile_is_not_ended(meanwhile: dict[str, Any]) -> None:
    bench = Bench(a_row(), 61, jobs=[JOB])
    bench.ledger.put(replace(bench.row, **meanwhile), an_allocation(["n0", "n1"]))
    await bench.limits._store(bench.row, bench.ledger.now)
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    assert (row.requeue_state.time_limit, bench.recorder.events) == (None, [])
