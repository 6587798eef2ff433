"""The pending workloads of one queue, in policy order, with what a pass must know of each as columns.

A pass asks questions such as "the next one that is not known to be refused"; over a hundred thousand workloads only whole columns can
answer that in time. The columns are one array of integers, kept in order with the list of workloads; a change moves what stands behind
it, which costs microseconds, and the usual arrival stands at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fluxqueue.queue.policies.demands import FOREVER_S, demand_of, millicores_of
from fluxqueue.queue.records import Workload, WorkloadId

__all__ = ["FIRST", "Backlog", "Column", "Key", "key_of"]

Key = tuple[int, datetime, int]
FIRST: Key = (-(1 << 62), datetime.min.replace(tzinfo=UTC), 0)
"""Ordered before every workload."""
_Item = TypeVar("_Item")
Column = npt.NDArray[np.int64]

_FAMILY, _COUNT, _DURATION, _SHAPE, _NAMESPACE, _MILLICORES = range(6)
_FIRST_ROOM = 64
_MANY = 64
_FEW = 2


def key_of(workload: Workload) -> Key:
    """Policy order: priority (high first), submit time, id."""
    return (-workload.priority, workload.submitted_at, workload.id)


def _between(items: list[_Item], rows: list[int]) -> list[_Item]:
    """What stands between and behind these rows, which are in order."""
    kept: list[_Item] = []
    for row, following in zip(rows, [*rows[1:], len(items)], strict=True):
        kept += items[row + 1 : following]
    return kept


class Backlog:
    """Pending workloads of a queue that may be matched. Not to be changed while a pass looks at it."""

    def __init__(self, workloads: Iterable[Workload] = ()) -> None:
        self._keys: list[Key] = []
        self._workloads: list[Workload] = []
        self._by_id: dict[WorkloadId, Key] = {}
        self._table = np.zeros((6, _FIRST_ROOM), dtype=np.int64)
        self._families: dict[str, int] = {}
        self._namespaces: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, int, int, int]] = {}
        self.update(workloads)

    def __len__(self) -> int:
        return len(self._workloads)

    def __iter__(self) -> Iterator[Workload]:
        return iter(self._workloads)

    def __getitem__(self, position: int) -> Workload:
        return self._workloads[position]

    def __contains__(self, workload: WorkloadId) -> bool:
        return workload in self._by_id

    def key(self, position: int) -> Key:
        """Order of the workload at a position."""
        return self._keys[position]

    def position(self, workload: WorkloadId) -> int | None:
        """Where a workload stands, the first at 0; None if it does not."""
        key = self._by_id.get(workload)
        return None if key is None else bisect_left(self._keys, key)

    @property
    def families(self) -> Column:
        """Family of each, as a number."""
        return self._table[_FAMILY, : len(self)]

    @property
    def counts(self) -> Column:
        """Slots wanted by each."""
        return self._table[_COUNT, : len(self)]

    @property
    def durations(self) -> Column:
        """Planned duration of each in seconds; `FOREVER_S` without an end."""
        return self._table[_DURATION, : len(self)]

    @property
    def shapes(self) -> Column:
        """Shape of each, as the number `shape_number` tells."""
        return self._table[_SHAPE, : len(self)]

    @property
    def shape_total(self) -> int:
        """How many shapes were ever seen: numbers of shapes are below it."""
        return len(self._shapes)

    def shape_number(self, shape: str) -> int | None:
        """Number of a shape; None if it never stood here."""
        known = self._shapes.get(shape)
        return None if known is None else known[0]

    @property
    def namespaces(self) -> Column:
        """Namespace of each, as its place in `namespace_names`."""
        return self._table[_NAMESPACE, : len(self)]

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """Every namespace that was ever seen."""
        return tuple(self._namespaces)

    @property
    def millicores(self) -> Column:
        """Cpu each asks for."""
        return self._table[_MILLICORES, : len(self)]

    def update(self, workloads: Iterable[Workload]) -> None:
        """Add workloads, or replace those of the same id."""
        arriving = list(workloads)
        if len(arriving) > _MANY and len(arriving) * 8 > len(self):
            self._rebuild(arriving)
            return
        for workload in arriving:
            key = key_of(workload)
            if self._by_id.get(workload.id) == key:
                self._replace(bisect_left(self._keys, key), workload)
            else:
                self.remove(workload.id)
                self._insert(workload)

    def remove(self, workload: WorkloadId) -> None:
        """Take a workload out; one that is not there is no error."""
        key = self._by_id.pop(workload, None)
        if key is None:
            return
        at, size = bisect_left(self._keys, key), len(self)
        del self._keys[at], self._workloads[at]
        self._table[:, at : size - 1] = self._table[:, at + 1 : size]

    def remove_all(self, workloads: Iterable[WorkloadId]) -> None:
        """Take many workloads out, in one move of what stands behind the first; those that are not there are no error."""
        leaving = {workload for workload in workloads if workload in self._by_id}
        if len(leaving) <= _FEW:
            for workload in leaving:
                self.remove(workload)
            return
        rows, size = sorted(bisect_left(self._keys, self._by_id.pop(workload)) for workload in leaving), len(self)
        first = rows[0]
        kept: npt.NDArray[np.bool_] = np.ones(size - first, dtype=np.bool_)
        kept[np.array(rows) - first] = False
        for column in self._table:  # one by one: a mask over both dimensions takes several times as long
            column[first : size - len(rows)] = column[first:size][kept]
        self._keys[first:] = _between(self._keys, rows)
        self._workloads[first:] = _between(self._workloads, rows)

    def _replace(self, at: int, workload: Workload) -> None:
        self._workloads[at] = workload
        self._table[:, at] = self._row(workload)

    def _insert(self, workload: Workload) -> None:
        key, size = key_of(workload), len(self)
        if size == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._workloads.insert(at, workload)
        self._by_id[workload.id] = key
        if at < size:
            self._table[:, at + 1 : size + 1] = self._table[:, at:size]
        self._table[:, at] = self._row(workload)

    def _rebuild(self, arriving: list[Workload]) -> None:
        kept = {workload.id: workload for workload in self._workloads}
        kept.update((workload.id, workload) for workload in arriving)
        ordered = sorted(((key_of(workload), workload) for workload in kept.values()), key=lambda pair: pair[0])
        self._keys = [key for key, _ in ordered]
        self._workloads = [workload for _, workload in ordered]
        self._by_id = {workload.id: key for key, workload in ordered}
        self._table = np.zeros((6, max(_FIRST_ROOM, 2 * len(ordered))), dtype=np.int64)
        if ordered:
            self._table[:, : len(ordered)] = np.array([self._row(workload) for workload in self._workloads], dtype=np.int64).T

    def _row(self, workload: Workload) -> tuple[int, ...]:
        known = self._shapes.get(workload.shape)
        if known is None:
            demand = demand_of(workload.jobspec)
            family = self._families.setdefault(demand.family, len(self._families))
            known = self._shapes[workload.shape] = (len(self._shapes), family, demand.count, millicores_of(workload.jobspec))
        number, family, count, millicores = known
        namespace = self._namespaces.setdefault(workload.namespace, len(self._namespaces))
        return family, count, FOREVER_S if workload.duration_s is None else workload.duration_s, number, namespace, millicores
