"""What the ResourceQuotas of namespaces leave, in one cycle.

Work that a quota would refuse is not matched: it would take nodes, and its pods would be refused there. It
waits with the reason ``QueueLimit`` and takes nothing from others. In a namespace, what fits is matched in
the order of the policy. A grant or a reservation of the cycle takes its part of the room at once.

The amounts of a namespace are a vector: one entry for each bound of each of its quotas. Work that asks for
the same shares one vector, so a round compares a few vectors, however many workloads wait. The work of a
namespace is only looked at while a vector that is known there does not fit, and of that work only the first
thousands in order: those behind them wait. Where nothing is known the first is measured, and other work when
it is about to be granted. A grant changes the rows of its own namespace only, so what is known of the others
is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.resource_quotas import amount_in_words
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit, Partition
from fluxqueue.queue.scheduling.policies.backlog import Backlog

__all__ = ["NO_ROOM_LIMITED", "Bound", "NamespaceRoom", "QuotaRoom", "Vector"]

Vector = npt.NDArray[np.int64]
_MOST_ROWS = 2_000
"""Workloads of a namespace and a queue that are compared with the room in a cycle."""
_Mask = npt.NDArray[np.bool_]
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound of a ResourceQuota.

    Attributes
    ----------
    quota
        Name of the ResourceQuota.
    name
        Of what it bounds, such as ``pods`` or ``requests.cpu``.
    hard
        The bound.
    """

    quota: str
    name: str
    hard: int


@dataclass(slots=True)
class NamespaceRoom:
    """What the quotas of a namespace leave.

    Attributes
    ----------
    bounds
        Of all its quotas.
    free
        What is left of each, 0 or more.
    vectors
        All that is asked for, one row each. Row 0 asks for nothing.
    row_of
        Returns the row of a workload.
    """

    bounds: Sequence[Bound]
    free: Vector
    vectors: Callable[[], Vector]
    row_of: Callable[[Workload], int]

    def wanted_by(self, workload: Workload) -> Vector:
        """Return what a workload asks for."""
        row = self.row_of(workload)  # which may be a new one of the vectors
        wanted: Vector = self.vectors()[row]
        return wanted

    def fitting(self) -> _Mask:
        """Return which rows of `vectors` fit into the room."""
        fitting: _Mask = np.logical_not(self.lacks(self.vectors()).any(axis=1))
        return fitting

    def lacks(self, wanted: Vector) -> _Mask:
        """Return which entries of a vector, or of rows of vectors, do not fit;
        what is not asked for never lacks.
        """
        lacking: _Mask = np.logical_and(wanted > 0, wanted > self.free)
        return lacking

    def copy(self) -> NamespaceRoom:
        """Return a copy that can be filled by itself."""
        return NamespaceRoom(self.bounds, self.free.copy(), self.vectors, self.row_of)


@dataclass(slots=True)
class QuotaRoom:
    """The room of all namespaces with quotas.

    Attributes
    ----------
    spaces
        By namespace.
    note_closed
        Called with each namespace in which work does not fit.

    Work that waits for a quota counts as over it by itself (`OverLimit.alone`): it keeps nobody behind it
    from starting.
    """

    spaces: Mapping[str, NamespaceRoom]
    note_closed: Callable[[str], None] = lambda _namespace: None
    _held: dict[WorkloadId, tuple[str, int]] = field(default_factory=dict)
    _unsure: set[str] = field(default_factory=set)
    _tight: set[str] = field(default_factory=set)
    _by_namespace: dict[str, dict[str, _Rows]] = field(default_factory=dict)
    _asked: dict[tuple[str, str], _Rows] = field(default_factory=dict)
    _open: dict[str, _Mask] = field(default_factory=dict)
    """By queue: which rows of its backlog fit, as far as its namespaces did not change since."""
    _changed: dict[str, set[str]] = field(default_factory=dict)
    """By queue: the namespaces that changed since."""

    def __post_init__(self) -> None:
        self._unsure.update(self.spaces)

    @property
    def any(self) -> bool:
        """True if a namespace has a quota."""
        return bool(self.spaces)

    def refusal(self, workload: Workload) -> OverLimit | None:
        """Return which bound keeps a workload from being matched now; None if none does."""
        space = self.spaces.get(workload.namespace)
        if space is None or workload.id in self._held:
            return None
        wanted = space.wanted_by(workload)
        lacking = space.lacks(wanted)
        if not lacking.any():
            return None
        self._unsure.add(workload.namespace)
        self.note_closed(workload.namespace)
        first = int(np.argmax(lacking))
        return _over(workload, space.bounds[first], int(wanted[first]), int(space.free[first]))

    def reached(self, workload: Workload) -> OverLimit:
        """Return in general terms that a workload waits for a quota."""
        namespace = workload.namespace
        key = Reason.QUEUE_LIMIT, "", (Partition.NAMESPACE, namespace)
        return OverLimit(
            key, f"the ResourceQuotas of namespace {namespace!r} leave no room for it: {_REMEDY}", alone=True
        )

    def lacks(self, workload: Workload) -> bool:
        """True if a workload does not fit."""
        space = self.spaces.get(workload.namespace)
        if space is None or workload.id in self._held:
            return False
        return bool(space.lacks(space.wanted_by(workload)).any())

    def add(self, workload: Workload) -> bool:
        """Let a workload take its part; return True if it has one."""
        space = self.spaces.get(workload.namespace)
        if space is None or workload.id in self._held:
            return False
        row = space.row_of(workload)
        if not row:
            return False
        self._held[workload.id] = workload.namespace, row
        space.free -= space.vectors()[row]
        self._unsure.add(workload.namespace)
        return True

    def remove(self, workload: WorkloadId) -> bool:
        """Give back what a workload has taken; return True if it had a part."""
        held = self._held.pop(workload, None)
        if held is None:
            return False
        namespace, row = held
        space = self.spaces[namespace]
        space.free += space.vectors()[row]
        self._unsure.add(namespace)
        return True

    def close(self, mask: _Mask, queue: str, backlog: Backlog) -> None:
        """Clear the rows of a backlog's mask that do not fit;
        those that hold reservations too, as they are not considered.
        """
        if not self.spaces:
            return
        if len(self._open.get(queue, mask)) != len(mask):
            self.forget_rows()
        if queue not in self._open:
            self._measure_first(queue, backlog)
        for namespace in self._unsure:
            (self._tight.discard if self.spaces[namespace].fitting().all() else self._tight.add)(namespace)
            for changed in self._changed.values():
                changed.add(namespace)
        self._unsure.clear()
        fitting = self._open.get(queue)
        if fitting is None:
            fitting, self._changed[queue] = np.ones(len(backlog), dtype=np.bool_), set(self._tight)
            self._open[queue] = fitting
        for namespace in self._changed[queue]:
            self._update(fitting, namespace, queue, backlog)
        self._changed[queue].clear()
        mask &= fitting

    def _measure_first(self, queue: str, backlog: Backlog) -> None:
        """Measure the first workload of each namespace in which nothing is known,
        so that not each of them is tried alone.
        """
        unknown = [namespace for namespace, space in self.spaces.items() if len(space.vectors()) == 1]
        for namespace in unknown:
            if (rows := self._rows_of(queue, backlog).get(namespace)) is not None:
                self.spaces[namespace].row_of(backlog[int(rows[0])])
                self._unsure.add(namespace)

    def _update(self, fitting: _Mask, namespace: str, queue: str, backlog: Backlog) -> None:
        """Find out which rows of one namespace fit."""
        rows = self._rows_of(queue, backlog).get(namespace)
        if rows is None:
            return
        fitting[rows] = True
        if namespace not in self._tight:
            return
        rows, behind = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
        fitting[behind] = False
        space, key = self.spaces[namespace], (queue, namespace)
        asked = self._asked.get(key)
        if asked is None:
            numbers = (space.row_of(backlog[row]) for row in rows.tolist())
            asked = self._asked[key] = np.fromiter(numbers, dtype=np.int64, count=len(rows))
        fits = space.fitting()[asked]
        if not fits.all():
            self.note_closed(namespace)
            fitting[rows[~fits]] = False

    def forget_rows(self) -> None:
        """Forget the rows of the backlogs: they changed."""
        self._by_namespace.clear()
        self._asked.clear()
        self._open.clear()
        self._changed.clear()

    def copy(self, only: Iterable[str] | None = None) -> QuotaRoom:
        """Return a copy that can be filled by itself: of all namespaces,
        or without the bounds of all but these.
        """
        names = self.spaces if only is None else [name for name in only if name in self.spaces]
        return QuotaRoom(
            {name: self.spaces[name].copy() for name in names}, self.note_closed, self._held.copy()
        )

    def _rows_of(self, queue: str, backlog: Backlog) -> dict[str, _Rows]:
        """Return the rows of each namespace."""
        known = self._by_namespace.get(queue)
        if known is None:
            order = np.argsort(backlog.namespaces, kind="stable")
            names = backlog.namespace_names
            ends = np.searchsorted(backlog.namespaces[order], np.arange(len(names)), side="right")
            parts = np.split(order, ends[:-1]) if names else []
            known = self._by_namespace[queue] = {
                name: rows for name, rows in zip(names, parts, strict=True) if len(rows)
            }
        return known


_REMEDY = "it can start when work of the namespace ends, or its quota is raised"


def _over(workload: Workload, bound: Bound, wanted: int, free: int) -> OverLimit:
    key, alone = (
        (Reason.QUEUE_LIMIT, bound.quota, (Partition.NAMESPACE, workload.namespace)),
        wanted > bound.hard,
    )
    what, most = amount_in_words(bound.name, wanted), amount_in_words(bound.name, bound.hard)
    text = f"the ResourceQuota {bound.quota!r} of namespace {workload.namespace!r} allows {most}"
    if alone:
        return OverLimit(
            key, f"{text}, and this asks for {what}: ask for less, or have the quota raised", alone=True
        )
    return OverLimit(
        key,
        f"{text} and leaves {amount_in_words(bound.name, free)}, and this asks for {what}: {_REMEDY}",
        alone=True,
    )


NO_ROOM_LIMITED = QuotaRoom({})
"""The room of a cluster without quotas."""
