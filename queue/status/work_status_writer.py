"""What the writers of the statuses of FluxQueues, FluxAccounts and FluxReservations share:
when they compare, and what they send.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from fluxqueue.api.workstatus import WorkStatus
from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.events import EventRecorder, Subject
from fluxqueue.kube.kinds import Kind, Named
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.status.failures import FailureReporter
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches

__all__ = ["WorkStatusWriter"]

_PACE_S = 3.0
_BATCH = 500

T = TypeVar("T", bound=Named)


class WorkStatusWriter(ABC, Generic[T]):
    """Compares all objects of a kind when work or one of them changed, at most every few seconds.

    Parameters
    ----------
    kind, objects
        The kind, which is cluster-scoped, and the objects that exist.
    api
        Where the status is written.
    ledger
        The queue.
    recorder
        For Events on objects whose status cannot be written.
    """

    def __init__(
        self,
        kind: Kind[T],
        objects: ObjectCache[T],
        api: Api,
        ledger: Ledger,
        recorder: EventRecorder | None = None,
    ) -> None:
        self._kind = kind
        self._objects = objects
        self._api = api
        self._ledger = ledger
        self._changed = asyncio.Event()
        failures = FailureReporter(recorder, "shown in its status", self._subjects)
        self._names: Batches[str] = Batches(kind.plural, failures.report, pace_s=_PACE_S)

    def workload_changed(self, _workload: WorkloadId) -> None:
        """Compare every object: what it shows of work may have changed."""
        self._changed.set()

    def resync(self) -> None:
        """Compare every object."""
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled, at most every few seconds."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._names.run(self._write, limit=_BATCH))
            while True:
                await self._changed.wait()
                self._changed.clear()
                for each in self._objects.list():
                    self._names.add(each.metadata.name)
                await asyncio.sleep(_PACE_S)

    @abstractmethod
    async def _write(self, names: list[str]) -> None:
        """Compare the objects of these names, and write the statuses that differ.
        A name that failed is given to ``_names.fail``.
        """

    async def _patch(
        self, name: str, status: WorkStatus, own_fields: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Write a status with the fields of its own kind;
        zeros too, since a merge patch would leave the old figure.
        """
        body: dict[str, Any] = {
            "status": {
                "pending": status.pending,
                "running": status.running,
                "nodesInUse": status.nodes_in_use,
            }
            | {
                "observedGeneration": status.observed_generation,
                "conditions": msgspec.to_builtins(status.conditions),
            }
            | {**own_fields}
        }
        with contextlib.suppress(NotFound):
            await self._api.patch(self._kind, name, body, patch_type=PatchType.MERGE, subresource="status")

    def _subjects(self, name: str) -> list[Subject]:
        found = self._objects.get("", name)
        return [Subject.of(self._kind, found)] if found is not None else []
