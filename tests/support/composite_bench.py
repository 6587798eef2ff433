"""An intake in memory beside trees of PodGroups of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from support.builders import Json
from support.controller_bench import subscribed
from support.gang_builders import pod_builder, read_object
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger
from support.queue_builders import a_pod

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.composite_slots import keep_in_slots

__all__ = ["CompositeBench", "composite_bench"]


@dataclass
class CompositeBench:
    """An intake in memory.

    Attributes
    ----------
    caches, ledger, intake
        Its parts.
    readable
        Whether objects of a source can be read, by its name; those of others can.
    """

    caches: Caches
    ledger: Ledger
    intake: IntakeController
    readable: dict[str, Readable] = field(default_factory=dict)

    def find(self, source: GangSource, namespace: str, name: str) -> Lookup:
        """Return what `GangObjects.find` would."""
        obj = self.caches.gang_objects.cache(source.name).get(namespace, name)
        return Lookup(self.readable.get(source.name, Readable.YES), obj)

    def composite(self, name: str, *, gang: int | None = None, **spec: Any) -> None:
        """Show a CompositePodGroup."""
        policy: Json = {"gang": {"minGroupCount": gang}} if gang is not None else {"basic": {}}
        self._show(COMPOSITE_POD_GROUPS, name, {"schedulingPolicy": policy, **spec})

    def group(self, name: str, *, gang: int | None = None, **spec: Any) -> None:
        """Show a PodGroup."""
        policy: Json = {"gang": {"minCount": gang}} if gang is not None else {"basic": {}}
        self._show(NATIVE_POD_GROUPS, name, {"schedulingPolicy": policy, **spec})

    def _show(self, source: GangSource, name: str, spec: Json) -> None:
        number = len(self.caches.gang_objects.cache(source.name))
        metadata = {"name": name, "uid": f"{source.name}-{name}", "resourceVersion": "1"}
        metadata["creationTimestamp"] = f"2026-01-01T00:{number:02}:00Z"
        self.caches.gang_objects.cache(source.name).apply(read_object(source, spec, **metadata))

    def remove(self, source: GangSource, name: str) -> None:
        """Delete a group."""
        cache = self.caches.gang_objects.cache(source.name)
        cache.remove(cache.get("default", name))

    def pods(self, group: str, count: int, *, annotation: dict[str, str] | None = None) -> None:
        """Show pods that name a PodGroup; the uid of each is its name."""
        for number in range(count):
            pod = pod_builder(f"{group}-{number}", annotations=annotation)
            pod = pod.with_("spec.schedulingGroup", {"podGroupName": group})
            self.caches.pods.apply(a_pod(pod, uid=f"{group}-{number}"))

    async def read(self) -> dict[str, Workload]:
        """Read what is enqueued after all changes, and return the rows by kind and name."""
        for _ in range(2):
            await self.intake.take_in(
                [
                    *{
                        key
                        for pod in self.caches.pods.list()
                        if (key := self.caches.group_of(pod)) is not None
                    },
                    *(row.uid for row in self.ledger.all()),
                    *(pod.metadata.uid for pod in self.caches.pods.list()),
                ]
            )
        return {f"{row.kind}/{row.name}": row for row in self.ledger.all()}


async def composite_bench(monkeypatch: pytest.MonkeyPatch) -> CompositeBench:
    """Make one."""
    api = MemoryApi()
    caches, ledger = Caches(api.api), await memory_ledger()
    intake = IntakeController(api.api, caches, ledger, Trigger(lambda _task: None))
    bench = CompositeBench(caches, ledger, subscribed(intake, caches, ledger))
    keep_in_slots(caches.composite_trees, ledger)
    monkeypatch.setattr(caches.gang_objects, "find", bench.find)
    return bench
