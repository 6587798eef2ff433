"""Which pods on a node are the queue's before their slots are stored, and what that costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger
from support.work_counts import assert_linear

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster import foreign_pods
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import SlotWrites, TakenSlot
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload

ONE_CPU = jobspec_of("default/mpi", [SizedPods({"cpu": Decimal(1)}, 1)], duration_s=60)


def counting(pods: ObjectCache[Pod], ledger: RecordingLedger) -> ForeignPods:
    made = ForeignPods(pods, ledger)
    pods.add_handler(made.pod_changed)
    subscribe(ledger, made)
    return made


class Bench:
    """Jobs of one pod each, on one node."""

    def __init__(self, *names: str) -> None:
        self.rows = [
            a_workload(name, uid=f"uid-of-{name}", state=State.RUNNING, jobid=jobid)
            for jobid, name in enumerate(names, 1)
        ]
        self.ledger = RecordingLedger(
            *(
                (row, replace(an_allocation(["n0"], jobid=row.jobid or 0), workload=row.id))
                for row in self.rows
            )
        )
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.foreign = counting(self.pods, self.ledger)

    def put(self, row: Workload, name: str = "", jobid: int | None = None) -> None:
        name = name or f"{row.name}-0"
        pod = make_pod(name).owned_by("Job", row.name).on_node("n0").cpu("100m")
        self.pods.apply(a_pod(pod.annotation("fluxqueue/allocation", str(jobid or row.jobid)), uid=name))


def test_pods_whose_slots_are_not_stored_yet_are_the_queues() -> None:
    bench = Bench("a", "b")
    for row in bench.rows:
        bench.put(row)
    assert bench.foreign.take_changed() == set()


@pytest.mark.parametrize(("reason", "cores"), [("Deferred", 3), ("Infeasible", 2)])
def test_a_pod_that_is_resized_counts_with_what_its_node_says_it_has(reason: str, cores: int) -> None:
    """The scheduler counts the most of what is requested, allocated and in effect,
    without a request that its node refuses.
    """
    bench = Bench("a")
    pod = make_pod("other").on_node("n0").cpu("3").phase("Running")
    bench.pods.apply(a_pod(pod, uid="other"))
    assert bench.foreign.take_changed() == {"n0"}
    status = {
        "name": pod.build()["spec"]["containers"][0]["name"],
        "resources": {"requests": {"cpu": "1"}},
        "allocatedResources": {"cpu": "2"},
    }
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    pod = pod.with_("status.containerStatuses", [status]).with_("status.conditions", [pending])
    bench.pods.apply(msgspec.convert(pod.uid("other").with_("metadata.resourceVersion", "11").build(), Pod))
    assert bench.foreign.take_changed() == {"n0"}
    (share,) = bench.foreign.shares(["n0"])
    assert share.amounts["cpu"] == cores * 1_000


def test_a_second_pod_beside_the_one_slot_of_its_job_is_foreign() -> None:
    bench = Bench("a", "b")
    bench.put(bench.rows[0])
    bench.put(bench.rows[0], "a-1")
    assert bench.foreign.take_changed() == {"n0"}


def test_a_second_pod_counts_through_the_slot_once_the_first_is_gone() -> None:
    """No pod of its own changed then, so what the graph holds for it would stay."""
    bench = Bench("a", "b")
    bench.put(bench.rows[0])
    bench.put(bench.rows[0], "a-1")
    assert counted(bench) == 1

    bench.pods.remove(bench.pods.list()[0])
    assert bench.foreign.take_changed() == {"n0"}
    assert counted(bench) == 0

    bench.put(bench.rows[1])
    assert bench.foreign.take_changed() == set(), "no pod is beside the slots any more"


async def test_a_second_pod_is_counted_again_when_its_slot_is_stored() -> None:
    bench = Bench("a")
    bench.put(bench.rows[0])
    bench.put(bench.rows[0], "a-1")
    assert counted(bench) == 1
    asked: list[None] = []
    bench.foreign.subscribe(lambda: asked.append(None))

    await bench.ledger.write_slots(SlotWrites(taken=[TakenSlot(FluxionJobId(1), 0, "a-1", "a-1")]))
    assert bench.foreign.take_changed() == {"n0"}
    assert len(asked) == 1


def counted(bench: Bench) -> int:
    """Return how many pods count as foreign, after the changes were taken."""
    bench.foreign.take_changed()
    (share,) = bench.foreign.shares(["n0"])
    return share.amounts.get("pods", 0)


def test_a_pod_that_names_the_allocation_of_another_job_is_foreign() -> None:
    bench = Bench("a", "b")
    bench.put(bench.rows[0], jobid=bench.rows[1].jobid)
    assert bench.foreign.take_changed() == {"n0"}


def test_a_new_pod_is_compared_with_those_of_its_own_allocation_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(*"abcdefgh")
    compared: list[str] = []
    held_by = bench.foreign._held_by

    def note(pod: Pod) -> Allocation | None:
        compared.append(pod.metadata.name)
        return held_by(pod)

    monkeypatch.setattr(bench.foreign, "_held_by", note)
    for row in bench.rows:
        bench.put(row)
    assert set(compared) == {f"{name}-0" for name in "abcdefgh"}
    assert len(compared) == len(bench.rows)


def test_the_pods_of_a_node_are_counted_in_proportion_to_their_number() -> None:
    def count(pods: int) -> Callable[[], object]:
        row = a_workload("mpi", uid="uid-of-mpi", state=State.RUNNING, jobid=7, jobspec=ONE_CPU)
        ledger, cache = RecordingLedger((row, an_allocation(["n0"] * pods))), ObjectCache[Pod]()
        foreign = counting(cache, ledger)
        for number in range(pods):
            pod = (
                make_pod(f"p{number}")
                .owned_by("Job", "mpi")
                .on_node("n0")
                .cpu("1")
                .annotation("fluxqueue/allocation", "7")
            )
            cache.apply(a_pod(pod, uid=f"p{number}"))
        return lambda: foreign.shares(["n0"])

    assert_linear(count)


async def test_other_work_goes_on_while_many_nodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [f"n{number}" for number in range(20)]
    foreign = ForeignPods(ObjectCache[Pod](), RecordingLedger(), devices=lambda *_: {})
    turns: list[int] = []
    counted = 0

    def slowly(node: str) -> dict[str, int]:
        nonlocal counted
        counted += 1
        return {"core": len(node)}

    async def another() -> None:
        while True:
            turns.append(counted)
            await asyncio.sleep(0)

    monkeypatch.setattr(foreign, "_amounts", slowly)
    monkeypatch.setattr(foreign_pods, "_TURN_S", 0.0)
    beside = asyncio.create_task(another())
    assert [share.node for share in await foreign.shares_in_turns(nodes)] == nodes
    beside.cancel()
    assert len({*turns}) > 10
    assert await foreign.shares_in_turns(nodes) == foreign.shares(nodes)


def test_the_slots_of_a_gang_on_many_nodes_are_sized_in_proportion_to_its_pods() -> None:
    def note(pods: int) -> Callable[[], object]:
        row = a_workload("mpi", uid="uid-of-mpi", state=State.RUNNING, jobid=7, jobspec=ONE_CPU)
        ledger, cache = (
            RecordingLedger((row, an_allocation([f"n{each}" for each in range(pods)]))),
            ObjectCache[Pod](),
        )
        foreign = counting(cache, ledger)
        builders = [
            make_pod(f"p{each}").owned_by("Job", "mpi").on_node(f"n{each}").cpu("1") for each in range(pods)
        ]
        bound = [
            a_pod(each.annotation("fluxqueue/allocation", "7"), uid=each.build()["metadata"]["name"])
            for each in builders
        ]

        def run() -> None:
            for pod in bound:
                cache.apply(pod)
                foreign._booked_for(pod.metadata.uid, pod.spec.node_name or "")

        return run

    assert_linear(note)


def test_new_pods_of_a_gang_on_one_node_cost_in_proportion_to_their_number() -> None:
    def note(pods: int) -> Callable[[], object]:
        row = a_workload("mpi", uid="uid-of-mpi", state=State.RUNNING, jobid=7, jobspec=ONE_CPU)
        ledger, cache = RecordingLedger((row, an_allocation(["n0"] * pods))), ObjectCache[Pod]()
        foreign = counting(cache, ledger)
        builders = [
            make_pod(f"p{each}").owned_by("Job", "mpi").on_node("n0").cpu("100m") for each in range(pods)
        ]
        bound = [
            a_pod(each.annotation("fluxqueue/allocation", "7"), uid=each.build()["metadata"]["name"])
            for each in builders
        ]

        def run() -> None:
            for pod in bound:
                cache.apply(pod)
            assert foreign.take_changed() == set()

        return run

    assert_linear(note)
