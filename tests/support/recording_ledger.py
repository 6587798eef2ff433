"""A ledger on tables in memory, for unit tests of controllers:
tests put rows into it and read which changes were made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec

from support.memory_store import MemoryStore
from support.queue_builders import EPOCH

from fluxqueue.queue.model.changes import SlotWrites
from fluxqueue.queue.model.records import Allocation, Epoch, FluxionJobId, Workload
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["RecordingLedger"]

_P = ParamSpec("_P")


class RecordingLedger(Ledger):
    """A ledger whose rows tests set, and which records the changes that are made through it.

    Parameters
    ----------
    rows
        Workloads, each with its allocation or None.

    Attributes
    ----------
    writes
        Name of the store's method, and each element that it was called for, in order.
    now
        The time of the tables.
    """

    def __init__(self, *rows: tuple[Workload, Allocation | None]) -> None:
        self.now: datetime = EPOCH
        self.writes: list[tuple[str, Any]] = []
        self._memory = MemoryStore(self._read_clock)
        super().__init__(self._memory, self._memory.raise_epoch(), self._read_clock)
        for workload, allocation in rows:
            self.put(workload, allocation)

    def _read_clock(self) -> datetime:
        return self.now

    def put(self, workload: Workload, allocation: Allocation | None = None) -> Workload:
        """Store a workload, with its allocation if it has one, and notify the listeners."""
        held = replace(allocation, workload=workload.id) if allocation is not None else None
        self._memory.put(workload, held)
        self.apply(Delta(workloads=(workload,), allocations=(held,) if held is not None else ()))
        return workload

    def end(self, workload: Workload) -> None:
        """Store the end of a workload."""
        self.end_in_tables(workload)
        self.apply(Delta(ended=(workload.id,)))

    def end_in_tables(self, workload: Workload) -> None:
        """Store the end of a workload without notifying anybody, as if the process had died after the
        commit.
        """
        self._memory.put(workload)

    def written(self, name: str) -> list[Any]:
        """Return what all changes of this name were made for."""
        return [element for each, element in self.writes if each == name]

    async def retry_releases_soon(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record it; it changes nothing that the copy has."""
        self.writes += [("retry_releases_soon", jobid) for jobid in jobids]
        await super().retry_releases_soon(jobids)

    async def note_released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record it, whether it is stored now or with the next slots."""
        self.writes += [("note_released", jobid) for jobid in jobids]
        await super().note_released(jobids)

    async def write_slots(self, writes: SlotWrites) -> None:
        """Write them, and record each kind under the name of the store's method for it."""
        released = list(self._released)
        await super().write_slots(writes)
        self.writes += [("mark_released", jobid) for jobid in released]
        ended = [slot for slot in writes.ended if slot[0] not in writes.finished]
        parts: dict[str, Sequence[Any]] = {
            "vacate_slots": writes.vacated,
            "take_slots": writes.taken,
            "mark_started": writes.started,
        }
        parts |= {"end_slots": ended, "mark_draining": writes.draining, "finish": writes.endings}
        self.writes += [(name, element) for name, elements in parts.items() for element in elements]

    async def _change(
        self, write: Callable[Concatenate[Epoch, _P], Awaitable[Delta]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Delta:
        """Make a change, and record it."""
        delta = await super()._change(write, *args, **kwargs)
        self.writes += [(write.__name__, element) for element in _elements(*args)]
        return delta


def _elements(first: object, *others: object) -> list[object]:
    """Return the elements of a change: of a collection its elements, else the arguments."""
    if isinstance(first, Mapping):
        return list(first.items())
    if isinstance(first, list | tuple):
        return list(first)
    return [(first, *others)]
