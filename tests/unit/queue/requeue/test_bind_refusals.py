"""What is done at once about pods that our own scheduler refuses,
by which of their siblings are bound already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.queue_builders import EPOCH, a_job, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    ReleaseMode,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.requeue.bind_refusals import BindRefusals
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.store.ledger import Ledger

FULL = "node n1 has too little cpu left"
BEFORE_S = 0.5
"""Long enough for a reaction that must not come."""


def released(name: str, job: str = "") -> PodBuilder:
    pod = make_pod(name).uid(name).by_fluxion("n1").with_("metadata.resourceVersion", "1")
    return pod.owned_by("Job", job) if job else pod


def refused(name: str, job: str = "") -> PodBuilder:
    return released(name, job).refused(FULL, node="n1")


class _Ledger:
    def __init__(self, workload: Workload, allocation: Allocation) -> None:
        self.workload = workload
        self.held = replace(allocation, workload=workload.id)
        self.requeue_state: list[RequeueState] = []

    def clock(self) -> Any:
        return EPOCH

    def get(self, _found: WorkloadId) -> Workload:
        return self.workload

    def allocation_of_job(self, jobid: FluxionJobId) -> Allocation | None:
        return self.held if jobid == self.held.jobid else None

    def releasing(self, _jobid: FluxionJobId) -> bool:
        return False

    async def set_requeue_states(self, changes: dict[WorkloadId, RequeueState]) -> None:
        self.requeue_state += changes.values()


class _Requeuer:
    """Notes the calls."""

    def __init__(self) -> None:
        self.back: list[Eviction] = []
        self.alone: list[str] = []
        self.groups: list[list[str]] = []
        self.asked = asyncio.Event()
        self.pods = self

    def withdrawing(self, _uid: str) -> bool:
        return False

    async def evict(self, wanted: Sequence[Eviction]) -> None:
        self.back += wanted
        self.asked.set()

    async def withdraw_alone(self, pods: Sequence[Pod]) -> list[Pod]:
        self.alone += [pod.metadata.name for pod in pods]
        self.asked.set()
        return list(pods)

    async def evict_group(self, _wanted: Eviction, pods: Sequence[Pod]) -> list[Pod]:
        self.groups.append(sorted(pod.metadata.name for pod in pods))
        self.asked.set()
        return []


class _Recorder:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def record(self, subject: Any, reason: str, _message: str, **_how: object) -> None:
        self.said.append((f"{subject.kind}/{subject.name}", reason))


class Bench:
    """A released workload of which the watch shows these pods."""

    def __init__(
        self, mode: ReleaseMode, *pods: PodBuilder, kind: str = "Pod", name: str = "w", **changes: Any
    ) -> None:
        self.requeuer, self.recorder = _Requeuer(), _Recorder()
        caches = Caches(cast(Api, None))
        if kind == "Job":
            caches.jobs.apply(a_job(make_job("j"), uid="uid-of-j"))
        settings = {
            "kind": kind,
            "release_mode": mode,
            "state": State.ALLOCATED,
            "jobid": 7,
            "uid": "uid-of-j" if kind == "Job" else "p0",
        }
        row = a_workload(name, **{**settings, **changes})
        uids = [pod.build()["metadata"]["uid"] for pod in pods]
        self.ledger = _Ledger(
            row, an_allocation(["n1"] * len(pods), states=[SlotState.TAKEN] * len(pods), pods=uids)
        )
        self.refusals = BindRefusals(
            caches,
            cast(Ledger, self.ledger),
            cast(Requeuer, self.requeuer),
            cast(EventRecorder, self.recorder),
        )
        subscribe(caches, self.refusals)
        for pod in pods:
            caches.pods.apply(msgspec.convert(pod.build(), Pod))

    async def react(self, within_s: float = 90) -> bool:
        """Run until the requeuer is called; False if it was not called in time."""
        task = asyncio.create_task(self.refusals.run())
        try:
            await asyncio.wait_for(self.requeuer.asked.wait(), within_s)
        except TimeoutError:
            return False
        finally:
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return True


async def test_a_job_of_which_no_pod_is_bound_is_evicted_as_a_whole() -> None:
    bench = Bench(ReleaseMode.PIN, refused("p0", "j"), released("p1", "j"), kind="Job")
    assert await bench.react()
    (back,) = bench.requeuer.back
    assert back.reason is Reason.BIND_FAILED
    assert FULL in back.message


async def test_if_a_sibling_is_bound_only_the_refused_pod_is_withdrawn() -> None:
    bench = Bench(ReleaseMode.PIN, refused("p0", "j"), released("p1", "j").on_node("n2"), kind="Job")
    assert await bench.react()
    assert (bench.requeuer.alone, bench.requeuer.back) == (["p0"], [])
    assert [list(requeue_state.refused) for requeue_state in bench.ledger.requeue_state] == [["n1"]]
    assert ("Pod/p0", "Requeued") in bench.recorder.said


async def test_a_single_pod_is_evicted_whatever_its_owner() -> None:
    bench = Bench(ReleaseMode.POD, refused("p0"))
    assert await bench.react()
    assert len(bench.requeuer.back) == 1


async def test_a_group_is_evicted_as_a_whole_until_one_of_its_pods_is_bound() -> None:
    group: dict[str, Any] = {"kind": "PodGroup", "name": "g", "uid": "group:default/g"}
    grouped = [pod.label("fluxqueue/pod-group", "g") for pod in (refused("p0"), released("p1"))]
    bench = Bench(ReleaseMode.GROUP, *grouped, **group)
    assert await bench.react()
    assert bench.requeuer.groups == [["p0", "p1"]]
    bench = Bench(ReleaseMode.GROUP, grouped[0], grouped[1].on_node("n2"), **group)
    assert await bench.react()
    assert (bench.requeuer.groups, bench.requeuer.alone) == ([], ["p0"])


async def test_a_pod_whose_allocation_was_freed_is_withdrawn_alone() -> None:
    bench = Bench(
        ReleaseMode.PIN,
        make_pod("p0").uid("p0").by_fluxion("n1", 6).refused(FULL, node="n1", jobid=6),
        kind="Job",
    )
    assert await bench.react()
    assert (bench.requeuer.alone, bench.ledger.requeue_state) == (["p0"], [])


@pytest.mark.parametrize(
    ("pod", "changes"),
    [
        (make_pod("p0").uid("p0").by_fluxion("n2").refused(FULL, node="n1"), {}),
        (refused("p0").on_node("n1"), {}),
        (refused("p0"), {"state": State.DRAINING, "reason": Reason.PREEMPTED}),
    ],
    ids=["of its former node", "bound since", "taken back already"],
)
async def test_an_old_refusal_or_one_that_is_being_handled_has_no_effect(
    pod: PodBuilder, changes: dict[str, Any]
) -> None:
    assert not await Bench(ReleaseMode.POD, pod, **changes).react(BEFORE_S)


async def test_a_refusal_that_comes_before_the_release_is_noted_is_acted_upon_then() -> None:
    bench = Bench(ReleaseMode.POD, refused("p0"))
    noted = bench.ledger.held
    bench.ledger.held = replace(noted, released_at=None)
    assert not await bench.react(BEFORE_S)
    bench.ledger.held = noted
    bench.refusals.resync()
    assert await bench.react()
