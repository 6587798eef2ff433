"""The intake on a store in memory, with everything that makes a workload wait for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, Json, make_job, make_pod
from support.controller_bench import running, until
from support.memory_api import MemoryApi
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import a_job, a_new_workload, a_pod, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake import dependency_tracker
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.dependency_graph import DependencyGraph
from fluxqueue.queue.intake.dependency_tracker import DependencyTracker
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Ending, ReasonChange, Requeue
from fluxqueue.queue.model.dependency_rules import judge
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.records import FluxionJobId, Grant, Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import StartConditions, TrackedDependency, track
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger


class CountingStore(MemoryStore):
    """A store that counts how often each object is described."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.described: Counter[str] = Counter()

    async def upsert(self, epoch: Any, described: Any) -> Delta:
        self.described.update(new.name for new in described)
        return await super().upsert(epoch, described)


class Bench:
    """A running intake, and what a user and the rest of the queue do."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
        self.api = MemoryApi()
        self.caches = Caches(self.api.api, miniclusters=True)
        self.store = CountingStore(lambda: self.now)
        self.ledger: Ledger
        self.intake: IntakeController
        namespace = {"metadata": {"name": "default", "uid": "ns", "labels": {"fluxqueue/managed": "true"}}}
        self.caches.namespaces.apply(msgspec.convert(namespace, Namespace))

    async def lead(self) -> None:
        """Begin as a new leader."""
        self.ledger = await memory_ledger(lambda: self.now, self.store)
        self.intake = IntakeController(self.api.api, self.caches, self.ledger, Trigger())
        subscribe(self.caches, self.ledger, self.intake)

    def apply(
        self, *names: str, uid: str = "", version: str = "10", owner: Json | None = None, **annotations: str
    ) -> None:
        """Create Jobs, or edit one by another version; the uid of a Job is its name,
        if nothing else is said.
        """
        for name in names:
            builder: JobBuilder = make_job(name).suspended().annotation("fluxqueue/suspended-by", "webhook")
            builder = builder.with_("metadata.creationTimestamp", "2026-11-21T08:00:00Z")
            for key, text in annotations.items():
                builder = builder.annotation(f"fluxqueue/{key}", text)
            if owner is not None:
                builder = builder.with_("metadata.ownerReferences", [owner])
            job = a_job(builder, uid=uid or name)
            self.caches.jobs.apply(
                msgspec.structs.replace(
                    job, metadata=msgspec.structs.replace(job.metadata, resource_version=version)
                )
            )

    def delete(self, name: str) -> None:
        """Delete a Job."""
        job = self.caches.jobs.get("default", name)
        assert job is not None
        self.caches.jobs.remove(job)

    async def end(self, uid: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        """End a workload; its object stays."""
        state = {Outcome.SUCCEEDED: State.COMPLETED, Outcome.FAILED: State.FAILED}.get(
            outcome, State.CANCELLED
        )
        row = self.ledger.by_uid(uid)
        assert row is not None
        job = self.caches.jobs.get_by_uid(uid)
        # everything else of it stays, such as its owner: the intake reads it before or after its end
        if job is not None:
            ended = a_job(
                make_job(row.name).with_("status.conditions", [{"type": "Complete", "status": "True"}]),
                uid=uid,
            )
            version = msgspec.structs.replace(job.metadata, resource_version="99")
            self.caches.jobs.apply(msgspec.structs.replace(job, metadata=version, status=ended.status))
        await self.ledger.finish([Ending(row.id, state, outcome, "as the test wants it")])

    def row(self, uid: str) -> Workload | None:
        """Return the row of a workload that has not ended."""
        return self.ledger.by_uid(uid)

    async def until_reason(self, uid: str, reason: Reason, text: str = "") -> Workload:
        """Wait until a workload has a reason, whose message has a text, and return it."""
        await until(
            lambda: (row := self.row(uid)) is not None and row.reason is reason and text in row.message
        )
        row = self.row(uid)
        assert row is not None
        return row


@asynccontextmanager
async def leading(bench: Bench) -> AsyncIterator[None]:
    """Lead, with all that the cluster has."""
    await bench.lead()
    bench.intake.resync()
    async with running(bench.intake.run()):
        yield


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with leading(bench):
        yield bench


async def test_a_job_waits_until_the_other_one_succeeded(bench: Bench) -> None:
    bench.apply("a")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason(
        "b", Reason.WAITING_FOR_DEPENDENCY, "Job default/b waits for Job default/a to succeed"
    )
    await bench.end("a")
    row = await bench.until_reason("b", Reason.NONE)
    assert str(row.start_conditions.after[0].state) == "satisfied"


async def test_a_job_may_wait_for_one_that_does_not_exist_yet(bench: Bench) -> None:
    bench.apply("b", after="any:job/a")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "which is not in the queue")
    bench.apply("a")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "Job default/a to end")
    await bench.end("a", Outcome.FAILED)
    await bench.until_reason("b", Reason.NONE)


async def test_a_job_that_ended_before_counts_while_it_exists(bench: Bench) -> None:
    bench.apply("a")
    await until(lambda: bench.row("a"))
    await bench.end("a")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason("b", Reason.NONE)


async def test_what_cannot_happen_any_more_says_so(bench: Bench) -> None:
    bench.apply("a")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "to succeed")
    await bench.end("a", Outcome.FAILED)
    row = await bench.until_reason("b", Reason.DEPENDENCY_NEVER_SATISFIED, "Job default/a ended as Failed")
    assert "edit the annotation fluxqueue/after, or delete the object" in row.message
    bench.apply("b", version="11", after="any:job/a")
    await bench.until_reason("b", Reason.NONE)


async def test_a_job_that_is_made_again_under_its_name_is_another_one(bench: Bench) -> None:
    bench.apply("a")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "Job default/a to succeed")
    bench.delete("a")
    bench.apply("a", uid="a2")
    await bench.until_reason("b", Reason.DEPENDENCY_NEVER_SATISFIED, "Job default/a ended as Cancelled")


async def test_a_deleted_job_is_waited_for_under_its_name_only(bench: Bench) -> None:
    """What ended and was deleted before is not what a new workload means by the name."""
    bench.apply("a")
    await until(lambda: bench.row("a"))
    await bench.end("a")
    bench.delete("a")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "which is not in the queue")
    bench.apply("a", uid="a2")
    await until(lambda: bench.row("a2"))
    await bench.end("a2")
    await bench.until_reason("b", Reason.NONE)


async def test_a_satisfied_dependency_stays_so_when_its_target_is_deleted(bench: Bench) -> None:
    bench.apply("a", "c")
    bench.apply("b", after="ok:job/a,ok:job/c")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "and for 1 more")
    await bench.end("a")
    bench.delete("a")
    await bench.end("c")
    await bench.until_reason("b", Reason.NONE)


async def test_a_new_leader_judges_what_ended_while_nobody_led() -> None:
    bench = Bench()
    async with leading(bench):
        bench.apply("a")
        bench.apply("b", after="ok:job/a")
        await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "to succeed")
    await bench.end("a")
    async with leading(bench):
        await bench.until_reason("b", Reason.NONE)


async def test_a_delay_and_a_begin_are_waited_for_and_then_it_is_matched(bench: Bench) -> None:
    bench.apply("a")
    bench.apply("b", after="any:job/a+1m")
    bench.apply("c", begin="+30s")
    await bench.until_reason(
        "c", Reason.WAITING_FOR_BEGIN, "Job default/c may begin from 2026-11-21T08:00:30Z on"
    )
    await until(lambda: bench.row("a"))
    await bench.end("a")
    await bench.until_reason(
        "b", Reason.WAITING_FOR_BEGIN, "Job default/b may begin from 2026-11-21T08:01:00Z on"
    )
    bench.now += timedelta(minutes=2)
    bench.intake.resync()
    for uid in "bc":
        await bench.until_reason(uid, Reason.NONE)


async def test_a_cycle_is_reported_on_all_its_members_until_it_is_broken(bench: Bench) -> None:
    bench.apply("a", after="ok:job/b")
    bench.apply("b", after="any:job/a")
    for uid in "ab":
        await bench.until_reason(uid, Reason.DEPENDENCY_NEVER_SATISFIED, "waits in a cycle")
    bench.delete("b")
    await bench.until_reason("a", Reason.DEPENDENCY_NEVER_SATISFIED, "Job default/b ended as Cancelled")


async def test_a_cycle_that_an_edit_breaks_is_forgotten(bench: Bench) -> None:
    bench.apply("a", after="ok:job/b")
    bench.apply("b", after="ok:job/a")
    await bench.until_reason("b", Reason.DEPENDENCY_NEVER_SATISFIED, "waits in a cycle")
    bench.apply("b", version="11")
    await bench.until_reason("b", Reason.NONE)
    await bench.until_reason("a", Reason.WAITING_FOR_DEPENDENCY, "Job default/b to succeed")


@pytest.mark.parametrize("told", [True, False])
async def test_a_new_leader_finds_a_cycle_again(*, told: bool) -> None:
    bench = Bench()
    async with leading(bench):
        bench.apply("a", after="ok:job/b")
        bench.apply("b", after="any:job/a")
        for uid in "ab":
            await bench.until_reason(uid, Reason.DEPENDENCY_NEVER_SATISFIED, "waits in a cycle")
    if not told:  # a leader between them ended before it told it
        waits = Reason.WAITING_FOR_DEPENDENCY
        await bench.ledger.set_reasons(
            [ReasonChange(workload=row.id, reason=waits, message="") for row in bench.ledger.all()]
        )
    bench.store.described.clear()
    async with leading(bench):
        await until(lambda: {"a", "b"} <= set(bench.store.described))
        for uid in "ab":
            await bench.until_reason(uid, Reason.DEPENDENCY_NEVER_SATISFIED, "waits in a cycle")


async def test_a_job_that_waits_for_itself_is_a_cycle(bench: Bench) -> None:
    bench.apply("a", after="ok:job/a")
    await bench.until_reason(
        "a", Reason.DEPENDENCY_NEVER_SATISFIED, "Job default/a, which waits for the first"
    )


@pytest.mark.parametrize("count", [20, 200])
async def test_members_that_leave_cycles_together_cost_one_search_of_their_own_cycles(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for number in range(count):
        bench.apply(f"a{number}", after=f"ok:job/b{number}")
        bench.apply(f"b{number}", after=f"ok:job/a{number}")
    await until(
        lambda: (
            len(rows := bench.ledger.all()) == 2 * count
            and all(row.reason is Reason.DEPENDENCY_NEVER_SATISFIED for row in rows)
        ),
        60,
    )
    searched: list[str] = []
    search = DependencyGraph.cycles

    def cycles(graph: DependencyGraph, candidates: Iterable[str]) -> Iterator[list[list[str]]]:
        candidates = [*candidates]
        searched.extend(candidates)
        return search(graph, candidates)

    monkeypatch.setattr(DependencyGraph, "cycles", cycles)
    bench.store.described.clear()
    for number in range(10):
        bench.delete(f"a{number}")
    await until(lambda: len(bench.ledger.all()) == 2 * count - 10)
    for number in range(10):
        await bench.until_reason(
            f"b{number}", Reason.DEPENDENCY_NEVER_SATISFIED, f"Job default/a{number} ended as Cancelled"
        )
    assert sorted(searched) == sorted(f"{side}{number}" for number in range(10) for side in "ab")
    assert bench.store.described == Counter(f"b{number}" for number in range(10))


async def test_what_waits_in_a_namespace_names_so_many_others_and_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependency_tracker, "MOST_IN_NAMESPACE", 5)
    bench.apply("a", after="ok:job/x,ok:job/y,ok:job/z")
    await bench.until_reason("a", Reason.WAITING_FOR_DEPENDENCY, "and for 2 more")
    bench.apply("b", after="ok:job/x,ok:job/y,ok:job/z")
    row = await bench.until_reason("b", Reason.INVALID_REQUEST, "would name more than 5 others in all")
    assert (row.blocked, row.start_conditions.after) == (True, ())
    bench.apply("c", after="ok:job/x,ok:job/y")
    await bench.until_reason("c", Reason.WAITING_FOR_DEPENDENCY)
    bench.delete("a")
    await until(lambda: bench.row("a") is None)
    bench.intake.resync()
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "and for 2 more")


async def test_one_may_name_more_than_all_others_may(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependency_tracker, "MOST_IN_NAMESPACE", 1)
    bench.apply("a", after="ok:job/x,ok:job/y")
    await bench.until_reason("a", Reason.WAITING_FOR_DEPENDENCY, "and for 1 more")
    bench.apply("a", version="11", after="ok:job/x,ok:job/y,ok:job/z")
    await bench.until_reason("a", Reason.WAITING_FOR_DEPENDENCY, "and for 2 more")


async def test_a_requeued_job_waits_for_nothing_that_was_satisfied() -> None:
    bench = Bench()
    async with leading(bench):
        bench.apply("a")
        bench.apply("b", after="ok:job/a")
        await until(lambda: bench.row("a"))
        await bench.end("a")
        row = await bench.until_reason("b", Reason.NONE)
        bench.delete("a")
        grant = Grant(
            workload=row.id,
            jobid=FluxionJobId(7),
            shares=(NodeShare("n1", {"pod": 1}, {}),),
            hosts=("n1",),
            start=bench.now,
            end=None,
        )
        assert await bench.ledger.grant([grant]) == []
    await bench.ledger.requeue(
        [Requeue(workload=row.id, reason=Reason.PREEMPTED, message="by a more urgent one")]
    )
    async with leading(bench):
        await until(lambda: (read := bench.row("b")) is not None and read.generation == 1)
        again = await bench.until_reason("b", Reason.PREEMPTED)
        assert not again.blocked


async def test_of_one_singleton_the_first_that_was_submitted_goes_first(bench: Bench) -> None:
    bench.apply("a", singleton="train")
    await until(lambda: bench.row("a"))
    bench.now += timedelta(seconds=1)
    bench.apply("b", "c", singleton="train")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "waits for Job default/a to end")
    await bench.until_reason("c", Reason.WAITING_FOR_DEPENDENCY, "waits for Job default/b to end")
    assert (row := bench.row("a")) is not None
    assert row.reason is Reason.NONE
    await bench.end("a", Outcome.FAILED)
    await bench.until_reason("b", Reason.NONE)
    bench.delete("b")
    await bench.until_reason("c", Reason.NONE)


async def test_a_hold_is_shown_before_a_dependency_which_is_tracked_meanwhile(bench: Bench) -> None:
    bench.apply("a")
    bench.apply("b", after="ok:job/a", begin="soon")
    await bench.until_reason("b", Reason.INVALID_REQUEST)
    await bench.end("a")
    bench.apply("b", version="11", after="ok:job/a")
    await bench.until_reason("b", Reason.NONE)


async def test_a_job_may_wait_for_a_pod_group_also_for_one_that_has_ended(bench: Bench) -> None:
    for uid in ("p0", "p1"):
        pod = (
            make_pod(uid)
            .gate("fluxqueue")
            .label("fluxqueue/pod-group", "mesh")
            .annotation("fluxqueue/pod-group-size", "2")
        )
        bench.caches.pods.apply(a_pod(pod, uid=uid))
    key = GroupKey("default", "mesh")
    await until(lambda: (group := bench.ledger.group(key)) is not None and group.reason is Reason.NONE)
    bench.apply("b", after="ok:pod-group/mesh")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "PodGroup default/mesh to succeed")
    group = bench.ledger.group(key)
    assert group is not None
    for uid in ("p0", "p1"):
        done = (
            make_pod(uid)
            .phase("Succeeded")
            .label("fluxqueue/pod-group", "mesh")
            .uid(uid)
            .with_("metadata.resourceVersion", "11")
        )
        bench.caches.pods.apply(msgspec.convert(done.build(), Pod))
    await bench.ledger.finish([Ending(group.id, State.COMPLETED, Outcome.SUCCEEDED, "")])
    await bench.until_reason("b", Reason.NONE)
    bench.apply("c", after="ok:pod-group/mesh")
    await bench.until_reason("c", Reason.NONE)


async def test_the_job_of_a_minicluster_may_be_made_again_from_an_edited_spec(bench: Bench) -> None:
    metadata = {"name": "flux", "namespace": "default", "uid": "mc", "resourceVersion": "1"}
    bench.caches.miniclusters.apply(msgspec.convert({"metadata": metadata, "spec": {"size": 2}}, MiniCluster))
    owner = {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "name": "flux",
        "uid": "mc",
        "controller": True,
    }
    bench.apply("flux", uid="flux-1", owner=owner)
    bench.apply("b", after="ok:minicluster/flux")
    await bench.until_reason("b", Reason.WAITING_FOR_DEPENDENCY, "MiniCluster default/flux to succeed")
    bench.delete("flux")
    await until(lambda: bench.row("flux-1") is None)
    bench.apply("flux", uid="flux-2", owner=owner)
    await until(lambda: bench.row("flux-2"))
    await bench.end("flux-2")
    await bench.until_reason("b", Reason.NONE)


@pytest.mark.parametrize("count", [50, 300])
async def test_a_chain_costs_each_member_a_fixed_number_of_descriptions(bench: Bench, count: int) -> None:
    bench.apply("w0")
    for number in range(1, count):
        bench.apply(f"w{number}", after=f"ok:job/w{number - 1}")
    await until(
        lambda: (
            len(bench.ledger.all()) == count
            and all(row.start_conditions.after for row in bench.ledger.all()[1:])
        ),
        60,
    )
    await until(
        lambda: all(each.target for row in bench.ledger.all() for each in row.start_conditions.after), 60
    )
    bench.store.described.clear()
    for number in range(10):
        await bench.end(f"w{number}")
        await bench.until_reason(f"w{number + 1}", Reason.NONE)
    assert bench.store.described.total() == 10, (
        "one for each member whose turn it is, and none for those behind"
    )


@pytest.mark.parametrize("count", [50, 300])
async def test_a_fan_wakes_its_members_once(bench: Bench, count: int) -> None:
    bench.apply("first", "other")
    bench.apply(*(f"w{number}" for number in range(count)), after="ok:job/first")
    await until(
        lambda: (
            sum(bool(each.target) for row in bench.ledger.all() for each in row.start_conditions.after)
            == count
        ),
        60,
    )
    bench.store.described.clear()
    await bench.end("other")
    await bench.end("first")
    await until(lambda: all(row.reason is Reason.NONE for row in bench.ledger.all()), 60)
    assert set(bench.store.described.values()) == {1}
    assert len(bench.store.described) == count


class TrackerBench:
    """A dependency tracker, and what it had described again."""

    def __init__(self) -> None:
        self.caches, self.ledger = Caches(MemoryApi().api), RecordingLedger()
        self.at_once, self.later = list[str](), list[str]()
        self.tracker = DependencyTracker(self.caches, self.ledger, self.at_once.append, self.later.append)
        subscribe(self.caches, self.ledger, self.tracker)

    def put(self, uid: str, *, namespace: str = "default", **changes: Any) -> Workload:
        """Store the row of a pending workload, and describe it if it has start conditions."""
        number = WorkloadId(len(self.ledger.all()) + 1)
        row = self.ledger.put(a_workload(uid, id=number, uid=uid, namespace=namespace))
        if changes:
            self.tracker.assign([a_new_workload(uid, namespace=namespace, **changes)])
        return row

    async def settle(self) -> None:
        """Settle all that is to be settled."""
        keys = [*self.tracker._keys._keys]
        self.tracker._keys._keys.clear()
        await self.tracker.settle(keys)


async def test_what_wakes_with_many_others_of_its_namespace_is_read_behind_new_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dependency_tracker, "_FEW", 2)
    bench = TrackerBench()
    waits = StartConditions(after=(track(parse_dependencies("ok:job/gate")[0]),))
    for namespace, gate, members in (("default", "gate", "abc"), ("other", "other-gate", "xy")):
        bench.caches.jobs.apply(a_job(make_job("gate").namespace(namespace), uid=gate))
        bench.put(gate, namespace=namespace)
        for uid in members:
            bench.put(uid, namespace=namespace, start_conditions=waits)
    await bench.settle()
    assert (bench.at_once, bench.later) == (["x", "y"], ["a", "b", "c"])


async def test_many_that_may_begin_at_one_time_are_read_behind_new_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dependency_tracker, "_FEW", 2)
    bench = TrackerBench()
    soon = StartConditions(begin_at=bench.ledger.now + timedelta(milliseconds=1))
    for namespace, members in (("default", "abc"), ("other", "xy")):
        for uid in members:
            bench.put(uid, namespace=namespace, start_conditions=soon)
    await until(lambda: not bench.tracker._alarms)
    await bench.settle()
    assert (sorted(bench.at_once), sorted(bench.later)) == (["x", "y"], ["a", "b", "c"])


async def test_what_is_put_off_of_a_large_graph_is_looked_for_after_its_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever edits a member of a large cycle again and again has a share of the time."""
    monkeypatch.setattr(dependency_tracker, "_REST_OF_WAITER_S", 0.05)
    bench = TrackerBench()
    bench.put("a")
    for uid in "bcd":
        asked = track(parse_dependencies(f"ok:job/{uid}")[0])
        waits = StartConditions(after=(msgspec.structs.replace(asked, target=uid),))
        bench.put(uid, start_conditions=waits)
        bench.tracker._cycles.note(uid)
        await bench.settle()
    assert bench.later == ["b"]
    await until(lambda: len(bench.tracker._keys))
    await bench.settle()
    assert bench.later == ["b", "c", "d"]


async def test_a_running_target_is_judged_when_it_starts_and_not_at_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TrackerBench()
    judged, replaced = list[str](), list[str]()

    def judge_counted(each: TrackedDependency, row: Workload | None, now: datetime) -> TrackedDependency:
        judged.append(each.condition)
        return judge(each, row, now)

    def replace_counted(graph: DependencyGraph, waiter: str, each: TrackedDependency) -> None:
        replaced.append(waiter)
        replace_dependency(graph, waiter, each)

    replace_dependency = DependencyGraph.replace
    monkeypatch.setattr(dependency_tracker, "judge", judge_counted)
    monkeypatch.setattr(DependencyGraph, "replace", replace_counted)
    target = bench.put("a")
    for condition in ("ok", "start"):
        asked = track(parse_dependencies(f"{condition}:job/a")[0])
        waits = StartConditions(after=(msgspec.structs.replace(asked, target="a"),))
        bench.put(condition, start_conditions=waits)

    async def change(**changes: Any) -> tuple[list[str], list[str], list[str]]:
        for found in (bench.at_once, judged, replaced):
            found.clear()
        bench.ledger.put(replace(target, **changes))
        await bench.settle()
        return bench.at_once, judged, replaced

    assert await change(message="waits") == ([], ["ok", "start"], []), "for the first time"
    began = {"state": State.RUNNING, "started_at": bench.ledger.now}
    assert await change(**began) == (["start"], ["ok", "start"], ["start"])
    assert await change(**began, message="runs well") == ([], [], [])
    again = {"state": State.RUNNING, "started_at": bench.ledger.now + timedelta(seconds=9)}
    assert await change(**again) == ([], ["ok"], []), "it was requeued, and started once more"


async def test_a_workload_with_many_dependencies_is_described_when_the_last_is_decided(bench: Bench) -> None:
    names = [f"a{number}" for number in range(600)]
    bench.apply(*names)
    await until(lambda: len(bench.ledger.all()) == 600, 60)
    bench.apply("b", after=",".join(f"any:job/{name}" for name in names))
    row = await bench.until_reason(
        "b", Reason.WAITING_FOR_DEPENDENCY, "Job default/a0 to end, and for 599 more"
    )
    await until(lambda: all(each.target for each in (bench.row("b") or row).start_conditions.after))
    bench.store.described.clear()
    await bench.ledger.finish(
        [
            Ending(each.id, State.COMPLETED, Outcome.SUCCEEDED, "")
            for each in bench.ledger.all()
            if each.uid != "b"
        ]
    )
    await bench.until_reason("b", Reason.NONE)
    assert bench.store.described["b"] == 1
