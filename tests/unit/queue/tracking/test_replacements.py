"""How long the slot of a deleted pod is kept for its replacement, and when it is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_node, make_pod
from support.controller_bench import TriggerLog
from support.queue_builders import a_pod, a_workload, an_allocation

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.changes import Replacement
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.replacements import ReplacementSlots
from fluxqueue.queue.tracking.slot_changes import PlannedChanges, SlotChanges

DELETED = "2026-01-01T00:00:00Z"


def a_namespace(**metadata: Any) -> Namespace:
    version = str(len(metadata))
    meta = {"name": "default", "uid": "ns", "resourceVersion": version, **metadata}
    return msgspec.convert({"metadata": meta}, Namespace)


class _Api:
    async def get(self, kind: object, name: str, namespace: str) -> ScaledWorkload:
        return msgspec.convert({"metadata": {"name": name}, "spec": {"replicas": 1}}, ScaledWorkload)


class _Ledger:
    def __init__(self, *rows: Workload) -> None:
        self.rows = {row.id: row for row in rows}

    def by_uid(self, uid: str) -> Workload | None:
        return next((row for row in self.rows.values() if row.uid == uid), None)

    async def mark_draining(self, ids: list[WorkloadId]) -> None: ...


class Bench:
    """A Deployment of one pod, whose only pod is gone."""

    def __init__(self, grace_s: float) -> None:
        self.looks: list[tuple[WorkloadId, float]] = []
        self.row = a_workload(
            "web-5d4f-x", kind="Pod", uid="pod-uid", release_mode=ReleaseMode.POD, state=State.RUNNING
        )
        self.caches = Caches(cast(Api, None))
        nodes: ObjectCache[Node] = self.caches.nodes
        nodes.replace([msgspec.convert(make_node("n1").uid("n1").build(), Node)])
        self.namespace()
        self.successions = ReplacementSlots(
            cast(Api, _Api()),
            self.caches,
            cast(Ledger, _Ledger(self.row)),
            cast(Trigger, None),
            self._look,
            grace_s=grace_s,
        )
        self.successions.note_deleted(self._pod())

    def _look(self, workload: WorkloadId, delay_s: float) -> None:
        self.looks.append((workload, delay_s))

    def _pod(self) -> Pod:
        builder = make_pod("web-5d4f-x").owned_by("ReplicaSet", "web-5d4f").label("pod-template-hash", "5d4f")
        return a_pod(builder, uid="pod-uid")

    def namespace(self, **metadata: Any) -> None:
        self.caches.namespaces.apply(a_namespace(**metadata))

    async def settle(self) -> list[PlannedChanges]:
        end = SlotChanges(
            end=(0,), state=State.CANCELLED, outcome=Outcome.CANCELLED, message="the pod was deleted"
        )
        return await self.successions.settle([PlannedChanges(self.row, an_allocation(["n1"]), end)])


async def test_a_slot_is_kept_for_as_long_as_the_configuration_says() -> None:
    bench = Bench(grace_s=7)
    assert await bench.settle() == []
    ((workload, delay_s),) = bench.looks
    assert workload == bench.row.id
    assert delay_s == pytest.approx(7.2)


async def test_without_grace_a_slot_ends_at_once() -> None:
    bench = Bench(grace_s=0)
    assert len(await bench.settle()) == 1


async def test_nothing_is_kept_in_a_namespace_that_is_being_deleted() -> None:
    bench = Bench(grace_s=30)
    bench.namespace(deletionTimestamp=DELETED)
    assert len(await bench.settle()) == 1


async def test_kept_slots_are_planned_again_once_their_namespace_is_being_deleted() -> None:
    bench = Bench(grace_s=30)
    assert await bench.settle() == []
    bench.looks.clear()
    bench.successions.note_ending_namespace("elsewhere")
    assert bench.looks == []
    bench.successions.note_ending_namespace("default")
    assert bench.looks == [(bench.row.id, 0)]


class Rollout:
    """A Deployment whose pods all ended at once, and whose new pods wait."""

    def __init__(self, pods: int) -> None:
        self.looks: list[WorkloadId] = []
        self.reads = 0
        self.replaced: list[tuple[WorkloadId, WorkloadId]] = []
        self.caches = Caches(cast(Api, None))
        self.caches.nodes.replace([msgspec.convert(make_node("n1").uid("n1").build(), Node)])
        self.caches.namespaces.apply(a_namespace())
        self.gone = [self._row(f"gone-{number}", state=State.RUNNING) for number in range(pods)]
        self.waiting = [self._row(f"waiting-{number}") for number in range(pods)]
        self._rows = {row.id: row for row in (*self.gone, *self.waiting)}
        self._ids = {row.uid: row.id for row in self._rows.values()}
        self.slots = ReplacementSlots(
            cast(Api, _Api()),
            self.caches,
            cast(Ledger, self),
            TriggerLog().trigger,
            lambda workload, _delay_s: self.looks.append(workload),
            grace_s=30,
        )
        for row in self.gone:
            self.slots.note_deleted(self._pod(row))

    def _row(self, name: str, **changes: Any) -> Workload:
        settings: dict[str, Any] = {"kind": "Pod", "uid": name, "release_mode": ReleaseMode.POD, "shape": "s"}
        return a_workload(name, **(settings | changes))

    def _pod(self, row: Workload) -> Pod:
        builder = make_pod(row.name).owned_by("ReplicaSet", "web-5d4f").label("pod-template-hash", "5d4f")
        return a_pod(builder.gate("fluxqueue"), uid=row.uid)

    def show_waiting(self) -> None:
        for row in self.waiting:
            self.caches.pods.apply(self._pod(row))

    async def settle(self, gone: Sequence[Workload]) -> list[PlannedChanges]:
        end = SlotChanges(end=(0,), state=State.CANCELLED, outcome=Outcome.CANCELLED)
        return await self.slots.settle([PlannedChanges(row, an_allocation(["n1"]), end) for row in gone])

    # ---- the ledger ----------------------------------------------------------------------------------------

    def by_uid(self, uid: str) -> Workload | None:
        self.reads += 1
        return self._rows.get(self._ids[uid])

    def get(self, workload: WorkloadId) -> Workload | None:
        return self._rows.get(workload)

    async def mark_draining(self, ids: list[WorkloadId]) -> None: ...

    async def replace(self, replacements: Sequence[Replacement]) -> list[WorkloadId]:
        self.replaced += [(each.replaced, each.replacement) for each in replacements]
        for each in replacements:
            self._rows[each.replacement] = replace(self._rows[each.replacement], state=State.RUNNING)
            del self._rows[each.replaced]
        return [each.replacement for each in replacements]


async def test_a_batch_reads_the_waiting_pods_of_an_owner_once_for_all_that_ended() -> None:
    rollout = Rollout(400)
    rollout.show_waiting()
    rollout.reads = 0
    for first in range(0, 400, 100):
        assert await rollout.settle(rollout.gone[first : first + 100]) == []
    pairs = zip(rollout.gone, rollout.waiting, strict=True)
    assert rollout.replaced == [(gone.id, waiting.id) for gone, waiting in pairs]
    assert rollout.reads <= 4 * 2 * 400


async def test_new_pods_that_come_together_have_the_kept_slots_of_their_owner_planned_once() -> None:
    rollout = Rollout(300)
    assert await rollout.settle(rollout.gone) == []
    rollout.show_waiting()
    rollout.looks.clear()
    for row in rollout.waiting:
        rollout.slots.note_change(row)
    assert set(rollout.looks) == {row.id for row in rollout.gone}
    assert len(rollout.looks) <= 2 * 300
