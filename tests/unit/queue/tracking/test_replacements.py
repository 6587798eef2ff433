"""How long the slot of a deleted pod is kept for its replacement, and when it is not kept."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from support.builders import make_node, make_pod
from support.queue_builders import a_pod, a_workload, an_allocation

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.replacements import ReplacementSlots
from fluxqueue.queue.tracking.slot_changes import PlannedChanges, SlotChanges

DELETED = "2026-01-01T00:00:00Z"


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
        version = str(len(metadata))
        meta = {"name": "default", "uid": "ns", "resourceVersion": version, **metadata}
        self.caches.namespaces.apply(msgspec.convert({"metadata": meta}, Namespace))

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
