"""Pods with a slot are released beside the planning, and one that is refused keeps no other back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from support.builders import make_pod
from support.controller_bench import running, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger
from support.work_counts import assert_linear

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.release import pod_gates
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.tracking.pod_releases import PodReleases


class Bench:
    """Gangs whose pods are stored in their slots and wait for their release. Some of them are refused."""

    def __init__(self) -> None:
        self.ledger, self.server = RecordingLedger(), MemoryApi()
        self.caches = Caches(self.server.api)
        self.server.show_in(self.caches)
        self.gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.plans: list[tuple[WorkloadId, float]] = []
        self.releases = PodReleases(
            self.gates, lambda workload, delay_s: self.plans.append((workload, delay_s))
        )
        self.refused: set[str] = set()
        self.tried: list[str] = []
        call = self.server.call

        async def note(request: object, *arguments: object, **options: object) -> bytes:
            name = str(request.path).rsplit("/", 1)[1]  # type: ignore[attr-defined]
            self.tried.append(name)
            await asyncio.sleep(0)
            if name in self.refused:
                raise ApiError(403, "Forbidden", f"{name} may not be changed")
            return await call(request, *arguments, **options)  # type: ignore[arg-type]

        self.server.call = note  # type: ignore[method-assign]

    def gang(self, name: str, pods: int, jobid: int = 7, namespace: str = "default") -> Workload:
        """Store a gang with its pods in their slots."""
        uids = [f"{name}-{rank}" for rank in range(pods)]
        for uid in uids:
            self.server.put("pods", make_pod(uid).namespace(namespace).uid(uid).gate("fluxqueue").build())
        row = a_workload(
            name,
            namespace=namespace,
            uid=name,
            state=State.ALLOCATED,
            release_mode=ReleaseMode.GATE,
            pods=pods,
            jobid=jobid,
        )
        return self.ledger.put(
            row, an_allocation([f"n{rank}" for rank in range(pods)], jobid=jobid, pods=uids)
        )

    def plan(self, gang: Workload) -> None:
        """Hand over the pods that still have the gate."""
        allocation = self.ledger.allocation(gang.id)
        assert allocation is not None
        pods = [(slot.rank, self.caches.pods.get_by_uid(slot.pod_uid or "")) for slot in allocation.slots]
        self.releases.put(
            gang, allocation, [(rank, pod) for rank, pod in pods if pod is not None and pod.held]
        )

    def released(self) -> list[str]:
        return [write.name for write in self.server.written("patch", "pods")]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with running(made.releases.run()):
        yield made


async def test_refused_pods_of_the_lowest_ranks_keep_no_other_back(bench: Bench) -> None:
    gang = bench.gang("mpi", 100)
    bench.refused = {f"mpi-{rank}" for rank in range(40)}
    bench.plan(gang)
    await until(lambda: len(bench.tried) == 100)
    await until(lambda: bench.plans)
    assert bench.released() == [f"mpi-{rank}" for rank in range(40, 100)]


async def test_a_refused_pod_is_not_tried_at_each_plan(bench: Bench) -> None:
    gang = bench.gang("mpi", 2)
    bench.refused = {"mpi-0"}
    bench.plan(gang)
    await until(lambda: bench.plans)
    for _ in range(10):
        bench.plan(gang)
    assert bench.releases._due == {}
    assert len(bench.plans) == 1, "one plan is due, after its pause"
    assert bench.tried.count("mpi-0") == 1


async def test_the_pause_of_a_refused_pod_doubles(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodGates, "pause_s", lambda *_: 0.0)
    gang = bench.gang("mpi", 1)
    bench.refused = {"mpi-0"}
    for _ in range(9):
        bench.tried.clear()
        bench.plan(gang)
        await until(lambda: bench.tried and not bench.releases._active)
    refused = bench.gates._refused["mpi-0"]
    assert refused.times == 9
    assert bench.gates._refuse(gang, a_pod_of(bench), 1.0) == pod_gates._LONGEST_RETRY_S


def a_pod_of(bench: Bench) -> Pod:
    found = bench.caches.pods.get_by_uid("mpi-0")
    assert found is not None
    return found


async def test_a_later_version_of_a_refused_pod_is_tried_at_once(bench: Bench) -> None:
    gang = bench.gang("mpi", 1)
    bench.refused = {"mpi-0"}
    bench.plan(gang)
    await until(lambda: bench.plans)
    bench.refused = set()
    bench.server.put(
        "pods", make_pod("mpi-0").uid("mpi-0").gate("fluxqueue").label("changed", "true").build()
    )
    bench.plan(gang)
    await until(lambda: bench.released() == ["mpi-0"])
    assert bench.gates._refused == {}


async def test_pods_of_another_gang_do_not_wait_for_those_of_a_large_one(bench: Bench) -> None:
    large, small = bench.gang("large", 200), bench.gang("small", 1, jobid=8)
    bench.plan(large)
    bench.plan(small)
    await until(lambda: len(bench.released()) == 201)
    assert bench.released().index("small-0") <= 32


async def test_pods_of_a_stranger_do_not_wait_for_the_gangs_of_another_namespace(bench: Bench) -> None:
    crowd = [bench.gang(f"crowd-{number}", 16, jobid=10 + number) for number in range(125)]
    for gang in (*crowd, bench.gang("stranger", 1, jobid=8, namespace="other")):
        bench.plan(gang)
    await until(lambda: "stranger-0" in bench.released())
    assert bench.released().index("stranger-0") <= 32


async def test_pods_that_a_later_plan_does_not_name_are_not_released(bench: Bench) -> None:
    gang = bench.gang("mpi", 3)
    bench.plan(gang)
    bench.server.remove("pods", "mpi-2")
    bench.plan(gang)
    await until(lambda: len(bench.released()) == 2)
    assert bench.tried == ["mpi-0", "mpi-1"]


async def test_handing_over_the_pods_of_a_gang_is_linear() -> None:
    bench = Bench()

    def hand_over(count: int) -> Callable[[], object]:
        gang = bench.gang(f"of-{count}", count, jobid=count)
        return lambda: bench.plan(gang)

    assert_linear(hand_over)
