"""The pending workloads of one queue in policy order, with the figures that a pass needs as columns.

A pass asks questions such as "the next workload that is not known to be refused". Over a hundred thousand
workloads only operations on whole columns are fast enough. The columns are one array of integers in the order
of the list of workloads. A change moves the rows behind it, which costs microseconds. Most arrivals go to the
end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.users import user_of
from fluxqueue.queue.scheduling.policies.demands import FOREVER_S, Demand, amounts_of, demand_of, interned
from fluxqueue.queue.scheduling.policies.growing_rows import Column, GrowingRows
from fluxqueue.queue.scheduling.policies.request_kinds import ALONE, Kind, RequestKinds, SlotSize

__all__ = ["FIRST", "PART", "Backlog", "Key", "first_of", "key_of", "work_before"]

Key = tuple[int, datetime, int]
FIRST: Key = (-(1 << 62), datetime.min.replace(tzinfo=UTC), 0)
"""Comes before every workload in policy order."""
_Item = TypeVar("_Item")
_Shape = tuple[int, int, int, tuple[tuple[str, int], ...]]
"""Number, family, number of slots, and what all of it requests of each resource type."""

PART = 4_096
"""Workloads that are worked on before others get a turn."""
_COLUMNS = 5
_KIND_COLUMNS = 4
_KIND, _SHAPE, _NAMESPACE, _ACCOUNT, _USER = range(_COLUMNS)
_FIRST_CAPACITY = 64
_MANY = 64
_FEW = 32
_MOST_UNUSED = 4_096
_key_in = itemgetter(0)


def _with_closed(text: str, closed: int) -> str:
    """Return the name of a family, or group, whose work may not use so many flavors yet."""
    return f"{text}-{closed}" if closed else text


def key_of(workload: Workload) -> Key:
    """Return the place of a workload in policy order: priority (high first), submit time, id."""
    return (-workload.order_priority, workload.submitted_at, workload.id)


def first_of(priority: int) -> Key:
    """Return the key before all work of a priority and behind all work of a higher one."""
    return (-priority, FIRST[1], 0)


def _parts(items: list[_Item]) -> Iterator[list[_Item]]:
    return (items[first : first + PART] for first in range(0, len(items), PART))


def _between(items: list[_Item], rows: list[int]) -> list[_Item]:
    """The items between and behind these rows, which are in order."""
    kept: list[_Item] = []
    for row, following in zip(rows, [*rows[1:], len(items)], strict=True):
        kept += items[row + 1 : following]
    return kept


class Backlog:
    """Pending workloads of a queue that may be matched. Must not change during a pass."""

    def __init__(self, workloads: Iterable[Workload] = ()) -> None:
        self._keys: list[Key] = []
        self._workloads: list[Workload] = []
        self._by_id: dict[WorkloadId, Key] = {}
        self._table = np.zeros((_COLUMNS, _FIRST_CAPACITY), dtype=np.int64)
        self._families: dict[str, int] = {}
        self._next_family = 0
        self._groups: dict[str, int] = {}
        self._next_group = 0
        self._slot_sizes: dict[int, SlotSize] = {}
        self._waiting_families: dict[tuple[int, int], int] = {}
        """Family of the work of a family that may not use so many flavors yet."""
        self._kinds: dict[Kind, int] = {}
        self._kind_rows = GrowingRows(_KIND_COLUMNS)
        self._kind_columns: RequestKinds | None = None
        self._namespaces: dict[str, int] = {}
        self._accounts: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._shapes: dict[str, _Shape] = {}
        self._amounts: dict[str, Column] = {}
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
        """Return the policy order of the workload at a position."""
        return self._keys[position]

    def position(self, workload: WorkloadId) -> int | None:
        """Return the position of a workload, from 0; None if it is not in the queue."""
        key = self._by_id.get(workload)
        return None if key is None else bisect_left(self._keys, key)

    def first_row(self, priority: int) -> int:
        """Return the first row of a priority or a lower one."""
        return bisect_left(self._keys, first_of(priority))

    @property
    def kinds(self) -> Column:
        """Kind of each workload, as an index into `request_kinds`."""
        return self._table[_KIND, : len(self)]

    def request_kinds(self) -> RequestKinds:
        """Return all kinds of requests."""
        if self._kind_columns is None:
            self._kind_columns = RequestKinds(self._kind_rows.columns, self._slot_sizes)
        return self._kind_columns

    def request_kind(self, position: int) -> Kind:
        """Return family, number of slots, and duration of the workload at a position."""
        number, kinds = self._table[_KIND, position], self.request_kinds()
        return int(kinds.families[number]), int(kinds.counts[number]), int(kinds.durations[number])

    def family_text(self, position: int) -> str:
        """Return the family of the workload at a position, as all backlogs name it."""
        workload = self._workloads[position]
        return _with_closed(demand_of(workload.jobspec).family, workload.closed_flavors)

    def family_number(self, family: str) -> int | None:
        """Return the number of a family in `request_kinds`; None if no workload has it."""
        return self._families.get(family)

    @property
    def shapes(self) -> Column:
        """Shape of each workload, as the number that `shape_number` returns."""
        return self._table[_SHAPE, : len(self)]

    @property
    def shape_total(self) -> int:
        """Every shape number is below it."""
        return len(self._shapes)

    def shape_number(self, shape: str) -> int | None:
        """Return the number of a shape; None if no workload has it."""
        known = self._shapes.get(shape)
        return None if known is None else known[0]

    @property
    def namespaces(self) -> Column:
        """Namespace of each workload, as an index into `namespace_names`."""
        return self._table[_NAMESPACE, : len(self)]

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """Every namespace ever added."""
        return tuple(self._namespaces)

    @property
    def accounts(self) -> Column:
        """Account of each workload, as an index into `account_names`."""
        return self._table[_ACCOUNT, : len(self)]

    @property
    def account_names(self) -> tuple[str, ...]:
        """Every account ever added; the empty name stands for none."""
        return tuple(self._accounts)

    @property
    def users(self) -> Column:
        """User of each workload, as an index into `user_names`."""
        return self._table[_USER, : len(self)]

    @property
    def user_names(self) -> tuple[str, ...]:
        """Every user ever added, by the name of `user_of`."""
        return tuple(self._users)

    def amounts_of_shapes(self, kind: str) -> Column:
        """Return what each shape requests of a resource type of the graph, in the graph's units,
        by its number.
        """
        by_shape = self._amounts.get(kind)
        if by_shape is None:
            requested = (
                next((amount for each, amount in shape[3] if each == kind), 0)
                for shape in self._shapes.values()
            )
            by_shape = self._amounts[kind] = np.fromiter(requested, dtype=np.int64, count=len(self._shapes))
        return by_shape

    def update(self, workloads: Iterable[Workload]) -> None:
        """Add workloads. One with the same id is replaced."""
        for _ in self.updating(workloads):
            pass

    def updating(self, workloads: Iterable[Workload]) -> Iterator[None]:
        """Do so, and yield after each part of the work if it is done for all workloads together.
        They are added when it is finished.
        """
        arriving = list(workloads)
        if len(self._kinds) + len(self._shapes) > 2 * len(self) + _MOST_UNUSED:
            self._forget_unused()
        if len(arriving) > _MANY and len(arriving) * 8 > len(self):
            yield from self._rebuild(arriving)
            return
        for workload in arriving:
            key = key_of(workload)
            if self._by_id.get(workload.id) == key:
                self._replace(bisect_left(self._keys, key), workload)
            else:
                self.remove(workload.id)
                self._insert(workload)

    def remove(self, workload: WorkloadId) -> None:
        """Remove a workload, if it is in the queue."""
        key = self._by_id.pop(workload, None)
        if key is None:
            return
        at, size = bisect_left(self._keys, key), len(self)
        del self._keys[at], self._workloads[at]
        for column in self._table:  # one by one: an overlapping move in two dimensions is copied first
            column[at : size - 1] = column[at + 1 : size]

    def remove_all(self, workloads: Iterable[WorkloadId]) -> None:
        """Remove those of the workloads that are in the queue, with one move of the rows behind the first."""
        leaving = {workload for workload in workloads if workload in self._by_id}
        if not leaving:
            return
        rows, size = (
            sorted(bisect_left(self._keys, self._by_id.pop(workload)) for workload in leaving),
            len(self),
        )
        following = [*rows[1:], size]
        if len(leaving) <= _FEW:
            for column in self._table:
                for gone, (row, behind) in enumerate(zip(rows, following, strict=True)):
                    column[row - gone : behind - gone - 1] = column[row + 1 : behind]
            for row in reversed(rows):
                del self._keys[row], self._workloads[row]
            return
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

    def _rebuild(self, arriving: list[Workload]) -> Iterator[None]:
        kept = {workload.id: workload for workload in self._workloads}
        kept.update((workload.id, workload) for workload in arriving)
        pairs: list[tuple[Key, Workload]] = []
        for part in _parts([*kept.values()]):
            pairs += sorted(((key_of(workload), workload) for workload in part), key=_key_in)
            yield
        pairs.sort(key=_key_in)  # of sorted parts: that is fast
        table = np.zeros((_COLUMNS, max(_FIRST_CAPACITY, 2 * len(pairs))), dtype=np.int64)
        keys: list[Key] = []
        workloads: list[Workload] = []
        by_id: dict[WorkloadId, Key] = {}
        for ordered in _parts(pairs):
            rows = [self._row(workload) for _, workload in ordered]
            table[:, len(keys) : len(keys) + len(rows)] = np.array(rows, dtype=np.int64).T
            keys += [key for key, _ in ordered]
            workloads += [workload for _, workload in ordered]
            by_id.update((workload.id, key) for key, workload in ordered)
            yield
        self._keys, self._workloads, self._by_id, self._table = keys, workloads, by_id, table

    def _row(self, workload: Workload) -> tuple[int, ...]:
        known = self._shapes.get(workload.shape)
        if known is None:
            demand = demand_of(workload.jobspec)
            family = self._family(demand)
            amounts = interned(tuple(sorted(amounts_of(workload.jobspec).items())))
            known = self._shapes[workload.shape] = (len(self._shapes), family, demand.count, amounts)
            self._amounts.clear()
        number, family, count, _ = known
        if closed := workload.closed_flavors:
            family = self._family_with_closed(workload, family, closed)
        kind = family, count, FOREVER_S if workload.tried_s is None else workload.tried_s
        if (kind_number := self._kinds.get(kind)) is None:
            kind_number = self._kinds[kind] = len(self._kinds)
            self._add_kind(kind)
        namespace = self._namespaces.setdefault(workload.namespace, len(self._namespaces))
        account = self._accounts.setdefault(workload.account, len(self._accounts))
        user = self._users.setdefault(user_of(workload), len(self._users))
        return kind_number, number, namespace, account, user

    def _add_kind(self, kind: Kind) -> None:
        self._kind_rows.append((*kind, self._slot_sizes.get(kind[0], ALONE)[0]))
        self._kind_columns = None

    def _family(self, demand: Demand, closed: int = 0) -> int:
        text = _with_closed(demand.family, closed)
        if (family := self._families.get(text)) is None:
            family = self._families[text] = self._next_family
            self._next_family += 1
            if demand.group:
                group = self._group_number(_with_closed(demand.group, closed))
                self._slot_sizes[family] = group, demand.amounts
        return family

    def _family_with_closed(self, workload: Workload, family: int, closed: int) -> int:
        known = self._waiting_families.get((family, closed))
        if known is None:
            known = self._waiting_families[family, closed] = self._family(demand_of(workload.jobspec), closed)
        return known

    def _group_number(self, group: str) -> int:
        if (number := self._groups.get(group)) is None:
            number = self._groups[group] = self._next_group
            self._next_group += 1
        return number

    def _forget_unused(self) -> None:
        """Forget kinds, shapes, families and groups that no workload has any more.
        Their numbers are not given again.
        """
        kinds, self._table[_KIND, : len(self)] = np.unique(self.kinds, return_inverse=True)
        known_kinds = [*self._kinds]
        self._kinds = {known_kinds[old]: new for new, old in enumerate(kinds.tolist())}
        self._kind_rows = GrowingRows(_KIND_COLUMNS)
        for kind in self._kinds:
            self._add_kind(kind)
        shapes, self._table[_SHAPE, : len(self)] = np.unique(self.shapes, return_inverse=True)
        known_shapes = [*self._shapes.items()]
        self._shapes = {
            known_shapes[old][0]: (new, *known_shapes[old][1][1:]) for new, old in enumerate(shapes.tolist())
        }
        self._amounts.clear()
        used = {family for _, family, _, _ in self._shapes.values()}
        self._waiting_families = {
            key: family for key, family in self._waiting_families.items() if key[0] in used
        }
        used.update(self._waiting_families.values())
        self._families = {text: family for text, family in self._families.items() if family in used}
        self._slot_sizes = {family: size for family, size in self._slot_sizes.items() if family in used}
        used_groups = {group for group, _ in self._slot_sizes.values()}
        self._groups = {text: group for text, group in self._groups.items() if group in used_groups}


def work_before(
    backlogs: Iterable[Backlog], workload: Workload, unsatisfiable: Collection[str], most: int
) -> tuple[Workload, ...]:
    """Return the work before a workload in order that could be matched, of all queues;
    of each at most one more than is considered.
    """
    found: list[Workload] = []
    for backlog in backlogs:
        count = 0
        for each in backlog:
            if count > most or key_of(each) >= key_of(workload):
                break
            if each.shape not in unsatisfiable:
                count += 1
                found.append(each)
    return tuple(sorted(found, key=key_of))
