"""The eviction of single pods: the order of the writes, and pods that were bound meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, Forbidden, NotFound, ServerError
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction, Requeue
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    ReleaseMode,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

Effect = tuple[Any, ...]


def released(name: str, node: str = "n1", version: int = 1) -> PodBuilder:
    return make_pod(name).uid(name).by_fluxion(node).with_("metadata.resourceVersion", str(version))


class _Cluster:
    """Pods as the API server has them; the watch shows each change at once."""

    def __init__(self, caches: Caches, effects: list[Effect], *pods: PodBuilder) -> None:
        self._caches = caches
        self._effects = effects
        self.pods = {pod.build()["metadata"]["name"]: pod.build() for pod in pods}
        self.refusing: dict[str, Exception] = {}
        for name in self.pods:
            caches.pods.apply(self._read(name))

    def _read(self, name: str) -> Pod:
        return msgspec.convert(self.pods[name], Pod)

    def change(self, builder: PodBuilder) -> None:
        """Change a pod without showing it in the watch."""
        self.pods[builder.build()["metadata"]["name"]] = builder.build()

    async def get(self, _kind: object, name: str, _namespace: str) -> Pod:
        if name not in self.pods:
            raise NotFound(404, "NotFound", name)
        self._caches.pods.apply(self._read(name))
        return self._read(name)

    async def patch(self, _kind: object, name: str, body: dict[str, Any], **_how: object) -> None:
        if name not in self.pods:
            raise NotFound(404, "NotFound", name)
        meta = self.pods[name]["metadata"]
        if body["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(409, "Conflict", name)
        for part in ("labels", "annotations"):
            kept = {**meta.get(part, {}), **body["metadata"][part]}
            meta[part] = {key: value for key, value in kept.items() if value is not None}
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        self._effects.append(("patched", name))
        self._caches.pods.apply(self._read(name))

    async def delete(
        self, _kind: object, name: str, resource_version: str | None = None, **_how: object
    ) -> None:
        if (error := self.refusing.get(name)) is not None:
            raise error
        if resource_version not in (None, self.pods[name]["metadata"].get("resourceVersion")):
            raise Conflict(409, "Conflict", name)
        self._effects.append(("deleted", name))


class _Ledger:
    """One workload and its allocation, and the writes."""

    def __init__(self, workload: Workload, allocation: Allocation, effects: list[Effect]) -> None:
        self.workload = workload
        self.held = replace(allocation, workload=workload.id)
        self._effects = effects

    def wall(self) -> Any:
        return EPOCH

    def subscribe(self, _listener: object) -> None: ...

    def notify(self, _ids: object) -> None: ...

    def get(self, found: WorkloadId) -> Workload | None:
        return self.workload if found == self.workload.id else None

    def by_uid(self, uid: str) -> Workload | None:
        return self.workload if uid == self.workload.uid else None

    def allocation(self, found: WorkloadId) -> Allocation | None:
        return self.held if found == self.workload.id else None

    def allocation_of_job(self, jobid: FluxionJobId) -> Allocation | None:
        return self.held if jobid == self.held.jobid else None

    async def set_requeue_states(self, _changes: object) -> None:
        self._effects.append(("requeue state",))

    async def requeue(self, backs: Sequence[Requeue]) -> None:
        self._effects += [("requeued", each.reason) for each in backs]

    async def evict(self, wanted: Sequence[Eviction], _given_back: object, _withdrawn: object) -> None:
        self._effects += [("evicted", each.reason) for each in wanted]

    async def vacate_slots(self, slots: Sequence[tuple[FluxionJobId, int, str]]) -> None:
        self._effects += [("vacated", rank) for _, rank, _ in slots]

    async def end_slots(self, slots: Sequence[tuple[FluxionJobId, int]]) -> None:
        self._effects += [("ended", rank) for _, rank in slots]


class _Trigger:
    def schedule(self) -> None: ...


class Bench:
    """A released workload whose pods are not bound as far as the watch has shown."""

    def __init__(self, mode: ReleaseMode, *pods: PodBuilder, kind: str = "Pod") -> None:
        self.effects: list[Effect] = []
        self.caches = Caches(cast(Api, None))
        self.cluster = _Cluster(self.caches, self.effects, *pods)
        uids = [pod.build()["metadata"]["uid"] for pod in pods]
        uid = uids[0] if kind == "Pod" else "job-uid"
        self.row = a_workload("w", kind=kind, uid=uid, release_mode=mode, state=State.ALLOCATED, jobid=7)
        allocation = an_allocation(["n1"] * len(pods), states=[SlotState.TAKEN] * len(pods), pods=uids)
        self.ledger = ledger = cast(Ledger, _Ledger(self.row, allocation, self.effects))
        self.reread: list[str] = []
        api, trigger = cast(Api, self.cluster), cast(Trigger, _Trigger())
        self.gates = PodGates(api, ledger, self.caches.pods.get_by_uid)
        self.requeuer = Requeuer(api, self.caches, ledger, trigger, self.gates, self.reread.append)
        subscribe(self.caches, ledger, self.requeuer)

    @property
    def pods(self) -> list[Pod]:
        return sorted(self.caches.pods.list(), key=lambda pod: pod.metadata.name)

    @property
    def wanted(self) -> Eviction:
        return Eviction(
            workload=self.row.id,
            reason=Reason.BIND_FAILED,
            message="n1 is full",
            requeue_state=RequeueState(starts=1),
        )


async def test_a_bare_pod_is_withdrawn_before_its_slot_is_freed() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    assert await bench.requeuer.evict([bench.wanted]) == []
    assert bench.effects == [("patched", "p0"), ("requeue state",), ("requeued", Reason.BIND_FAILED)]
    assert bench.pods[0].held
    assert bench.reread == ["p0"]
    assert not bench.gates.withdrawing("p0")


async def test_a_bare_pod_that_was_bound_meanwhile_keeps_its_node() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    bench.cluster.change(released("p0", version=2).on_node("n1"))
    assert await bench.requeuer.evict([bench.wanted]) == [bench.row.id]
    assert bench.effects == []


async def test_a_pod_of_which_only_the_status_changed_is_read_again_and_withdrawn() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    bench.cluster.change(released("p0", version=2).refused("full", node="n1"))
    assert await bench.requeuer.evict([bench.wanted]) == []
    assert bench.effects[0] == ("patched", "p0")


async def test_a_pod_that_was_released_elsewhere_meanwhile_is_left_there() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    bench.cluster.change(make_pod("p0").uid("p0").by_fluxion("n2", 8).with_("metadata.resourceVersion", "5"))
    assert not await bench.requeuer.pods.withdraw(bench.pods[0])
    assert bench.effects == []


async def test_a_pod_that_is_gone_is_not_requeued() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    bench.cluster.pods.clear()
    assert not await bench.requeuer.pods.evict_single(bench.wanted)
    assert bench.effects == []


async def test_a_pod_of_the_stock_scheduler_that_has_an_owner_drains_to_be_deleted() -> None:
    bench = Bench(ReleaseMode.POD, make_pod("p0").uid("p0").allocation("n1").owned_by("ReplicaSet", "web"))
    assert await bench.requeuer.evict([bench.wanted]) == []
    assert bench.effects == [("evicted", Reason.BIND_FAILED)]


async def test_the_slot_of_a_withdrawn_pod_ends_and_its_siblings_keep_theirs() -> None:
    bench = Bench(ReleaseMode.GATE, released("p0"), released("p1"), kind="Job")
    (withdrawn,) = await bench.requeuer.pods.evict([bench.pods[1]], "full")
    assert withdrawn.metadata.name == "p1"
    assert bench.effects == [("patched", "p1"), ("ended", 1)]
    assert bench.reread == ["p1"]


@pytest.mark.parametrize(("window_s", "effect"), [(30, "vacated"), (-30, "ended")])
async def test_while_the_list_of_a_job_pins_new_pods_a_slot_is_only_emptied(
    window_s: int, effect: str
) -> None:
    bench = Bench(ReleaseMode.PIN, released("p0"), released("p1"), kind="Job")
    until = (EPOCH + timedelta(seconds=window_s)).isoformat()
    bench.caches.jobs.apply(a_job(make_job().pod_annotation("fluxqueue/pin-until", until)))
    await bench.requeuer.pods.evict([bench.pods[0]], "full")
    assert bench.effects == [("patched", "p0"), (effect, 0)]


async def test_a_group_waits_again_once_all_its_pods_are_withdrawn() -> None:
    bench = Bench(ReleaseMode.GROUP, released("p0"), released("p1"))
    assert await bench.requeuer.pods.evict_group(bench.wanted, bench.pods) == []
    assert [effect[0] for effect in bench.effects] == ["patched", "patched", "requeue state", "requeued"]


async def test_of_a_group_of_which_one_pod_was_bound_meanwhile_the_others_wait_alone() -> None:
    bench = Bench(ReleaseMode.GROUP, released("p0"), released("p1"), released("p2"))
    bench.cluster.change(released("p1", version=2).on_node("n1"))
    alone = await bench.requeuer.pods.evict_group(bench.wanted, bench.pods)
    assert [pod.metadata.name for pod in alone] == ["p0", "p2"]
    assert bench.effects == [("patched", "p0"), ("patched", "p2"), ("ended", 0), ("ended", 2)]


def stock(name: str, version: int = 1) -> PodBuilder:
    pod = make_pod(name).uid(name).allocation("n1").owned_by("StatefulSet", "web")
    return pod.with_("metadata.resourceVersion", str(version))


async def test_pods_of_a_group_that_the_stock_scheduler_binds_are_deleted() -> None:
    bench = Bench(ReleaseMode.GROUP, stock("p0"), stock("p1"))
    bench.cluster.change(stock("p1", version=2))
    assert await bench.requeuer.pods.evict_group(bench.wanted, bench.pods) == []
    assert [effect[:2] for effect in bench.effects[:2]] == [("deleted", "p0"), ("deleted", "p1")]
    assert [effect[0] for effect in bench.effects[2:]] == ["requeue state", "requeued"]


async def test_a_pod_that_the_stock_scheduler_bound_meanwhile_is_not_deleted() -> None:
    bench = Bench(ReleaseMode.GROUP, stock("p0"), stock("p1"))
    bench.cluster.change(stock("p1", version=2).on_node("n1"))
    await bench.requeuer.pods.evict_group(bench.wanted, bench.pods)
    assert bench.effects == [("deleted", "p0"), ("ended", 0)]


async def test_a_group_keeps_its_slots_if_one_of_its_pods_may_not_be_deleted() -> None:
    bench = Bench(ReleaseMode.GROUP, stock("p0"), stock("p1"))
    bench.cluster.refusing["p1"] = Forbidden(403, "Forbidden", "a webhook refuses")
    with pytest.raises(Forbidden):
        await bench.requeuer.pods.evict_group(bench.wanted, bench.pods)
    assert bench.effects == [("deleted", "p0")]


async def test_a_replacement_is_not_released_onto_a_slot_that_is_being_freed() -> None:
    bench = Bench(ReleaseMode.GROUP, stock("p0"))
    slots = an_allocation(["n1"], states=[SlotState.TAKEN], pods=["p0-again"])
    replacement = a_pod(make_pod("p0").gate("fluxqueue"), uid="p0-again")
    cast(Any, bench.ledger).held = slots
    with bench.gates.kept_for_withdrawal(bench.pods):
        assert await bench.gates.remove(bench.row, slots, 0, replacement, 1) is not None
    assert bench.effects == []


async def test_a_pod_is_not_to_be_released_before_its_slot_is_free() -> None:
    bench = Bench(ReleaseMode.POD, released("p0"))
    with bench.gates.kept_for_withdrawal(bench.pods):
        assert bench.gates.withdrawing("p0")
        with bench.gates.kept_for_withdrawal(bench.pods):
            pass
        assert bench.gates.withdrawing("p0"), "somebody else is still at it"
    assert not bench.gates.withdrawing("p0")


@pytest.mark.parametrize(
    ("error", "deleted"),
    [
        (Forbidden(403, "Forbidden", "a webhook refuses to delete a"), ["b"]),
        (ServerError(500, "InternalError", "etcd is away"), []),
    ],
    ids=["one pod", "the API server"],
)
async def test_a_pod_that_may_not_be_deleted_keeps_no_other_from_it(
    error: Exception, deleted: list[str]
) -> None:
    bench = Bench(
        ReleaseMode.PIN,
        *(make_pod(name).uid(name).on_node("n1").phase("Running") for name in "ab"),
        kind="Job",
    )
    bench.cluster.refusing["a"] = error
    await bench.requeuer.pods.evict(bench.pods, "its node was lost")
    assert [name for what, name in bench.effects if what == "deleted"] == deleted
