"""What the workloads of a queue, and of each namespace in it, may use at once.

A workload over a limit stands aside with the reason `QueueLimit`: it does not close its queue for others, who may be under theirs. Limits
on running workloads and cores are known before a match, so those are not even offered to the matcher. How many nodes a workload takes
is known only by its answer, because it may share nodes that its queue uses already: that limit is checked on the nodes that were found,
before the grant is stored, and a grant over it is given back. So a limit is never exceeded, not even for a moment.

Who was promised nodes counts as if he ran already: nobody who starts meanwhile can then make the promise exceed a limit. What runs and
what is promised is counted once at the beginning of a cycle; what the cycle starts and promises is added as it goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxqueues import Limits, QueueLimits
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.demands import millicores_of
from fluxqueue.queue.records import Allocation, SlotState, Workload, WorkloadId

__all__ = ["Quotas"]

_Key = tuple[str, str | None]
"""A queue, or a queue and a namespace in it."""
_PATIENCE = 20
"""Grants of one queue that are given back in one cycle, before the rest of it stands aside."""
_ANY = 1 << 62

_millicores = lru_cache(maxsize=16_384)(millicores_of)


@dataclass(frozen=True, slots=True)
class _Holding:
    keys: tuple[_Key, ...]
    millicores: int
    nodes: frozenset[str]


@dataclass(slots=True)
class _Use:
    running: int = 0
    millicores: int = 0
    nodes: Counter[str] = field(default_factory=Counter)


class Quotas:
    """The use of one cycle, measured against the limits.

    Parameters
    ----------
    limits
        Of the queues that have any.
    live
        Workloads that hold an allocation. Only those of limited queues are counted, so without limits this costs nothing.

    Attributes
    ----------
    version
        Moves with every change of use.

    Examples
    --------
    >>> quotas = Quotas(limits, ledger.live())
    >>> quotas.refusal(workload) or quotas.excess(workload, hosts) or quotas.take(workload, hosts)
    """

    def __init__(self, limits: Mapping[str, QueueLimits], live: Iterable[tuple[Workload, Allocation]]) -> None:
        self._limits = limits
        self._uses: dict[_Key, _Use] = {}
        self._held: dict[WorkloadId, _Holding] = {}
        self._over: dict[str, set[WorkloadId]] = {}
        self._given_back: Counter[str] = Counter()
        self.version = 0
        if limits:
            for workload, allocation in live:
                if allocation.remnant:
                    continue  # what may still run on a lost node must not keep its own workload from starting elsewhere
                self.take(workload, (slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED))

    def limited(self, queue: str) -> bool:
        """Whether a queue has any limit."""
        return queue in self._limits

    def refusal(self, workload: Workload) -> str:
        """Why it may not be matched now, in a sentence; empty if it may."""
        return next(
            (
                sentence
                for where, limits, use in self._concerning(workload)
                if (sentence := _over_running(where, limits, use) or _over_cores(where, limits, use, _millicores(workload.jobspec)))
            ),
            "",
        )

    def excess(self, workload: Workload, hosts: Iterable[str]) -> str:
        """Why it may not start on these nodes, in a sentence; empty if it may.

        Parameters
        ----------
        workload
            For which `refusal` was empty.
        hosts
            Nodes the matcher found, repetitions allowed.
        """
        found = set(hosts)
        for where, limits, use in self._concerning(workload):
            if limits.nodes is not None and (wanted := len(use.nodes.keys() | found)) > limits.nodes:
                return f"{where} may use {limits.nodes} nodes at once: it uses {len(use.nodes)}, and {wanted} with this"
        return ""

    def take(self, workload: Workload, hosts: Iterable[str]) -> None:
        """Count a workload that holds these nodes from now on, or that they are promised to; instead of what it held so far."""
        if workload.queue not in self._limits:
            return
        self.drop(workload.id)
        keys = (workload.queue, None), (workload.queue, workload.namespace)
        self._held[workload.id] = holding = _Holding(keys, _millicores(workload.jobspec), frozenset(hosts))
        for key in keys:
            use = self._uses.setdefault(key, _Use())
            use.running += 1
            use.millicores += holding.millicores
            use.nodes.update(holding.nodes)
        self.version += 1

    def drop(self, workload: WorkloadId) -> None:
        """Count it no longer, if it was counted."""
        holding = self._held.pop(workload, None)
        if holding is None:
            return
        for key in holding.keys:
            use = self._uses[key]
            use.running -= 1
            use.millicores -= holding.millicores
            use.nodes.subtract(holding.nodes)
            use.nodes = +use.nodes
        self.version += 1

    def without(self, workloads: Iterable[WorkloadId]) -> Quotas:
        """What would be measured if these held nothing; this stays as it is."""
        other = Quotas(self._limits, ())
        other._held = dict(self._held)
        other._uses = {key: _Use(use.running, use.millicores, use.nodes.copy()) for key, use in self._uses.items()}
        for workload in workloads:
            other.drop(workload)
        return other

    def stand_aside(self, workload: Workload) -> None:
        """Note that what the matcher found for it was too much: it is not offered again in this cycle."""
        self._over.setdefault(workload.queue, set()).add(workload.id)
        self._given_back[workload.queue] += 1
        self.version += 1

    def within(self, queue: str, backlog: Backlog) -> npt.NDArray[np.bool_]:
        """Which rows of a queue's backlog may be offered to the matcher, those apart that were promised nodes already."""
        mask = np.ones(len(backlog), dtype=np.bool_)
        limits = self._limits.get(queue)
        if limits is None:
            return mask
        if self._given_back[queue] >= _PATIENCE:
            return ~mask
        mask &= backlog.millicores <= _room_m(limits, self._uses.get((queue, None)))
        if (each := limits.per_namespace) is not None and len(backlog):
            rooms = np.array([_room_m(each, self._uses.get((queue, name))) for name in backlog.namespace_names], dtype=np.int64)
            mask &= backlog.millicores <= rooms[backlog.namespaces]
        for found in self._over.get(queue, ()):
            if (row := backlog.position(found)) is not None:
                mask[row] = False
        return mask

    def together(self, workloads: Sequence[Workload]) -> int:
        """How many of these, in order, may be offered in one go: all of them may be granted.

        Of a queue with a limit on nodes it is one at a time, because each answer decides about the next.
        """
        if not workloads or (limits := self._limits.get(workloads[0].queue)) is None:
            return len(workloads)
        if any(part is not None and part.nodes is not None for part in (limits, limits.per_namespace)):
            return 1
        trial = Quotas({workloads[0].queue: limits}, ())
        trial._uses = {key: _Use(use.running, use.millicores) for key, use in self._uses.items() if key[0] == workloads[0].queue}
        for number, workload in enumerate(workloads):
            if trial.refusal(workload):
                return max(1, number)
            trial.take(workload, ())
        return len(workloads)

    def _concerning(self, workload: Workload) -> list[tuple[str, Limits, _Use]]:
        limits = self._limits.get(workload.queue)
        if limits is None:
            return []
        queue = f"the queue {workload.queue!r}"
        found: list[tuple[str, Limits, _Use]] = [(queue, limits, self._uses.get((workload.queue, None), _Use()))]
        if limits.per_namespace is not None:
            use = self._uses.get((workload.queue, workload.namespace), _Use())
            found.append((f"namespace {workload.namespace!r} in {queue}", limits.per_namespace, use))
        return found


def _room_m(limits: Limits, use: _Use | None) -> int:
    """Millicores one more workload may have; less than none if none may run."""
    running, millicores = (use.running, use.millicores) if use is not None else (0, 0)
    if limits.running is not None and running >= limits.running:
        return -1
    return _ANY if limits.cores is None else limits.cores * 1000 - millicores


def _over_running(where: str, limits: Limits, use: _Use) -> str:
    if limits.running is None or use.running < limits.running:
        return ""
    return f"{where} may run {limits.running} workloads at once, and {use.running} run or have nodes reserved"


def _over_cores(where: str, limits: Limits, use: _Use, millicores: int) -> str:
    if limits.cores is None or use.millicores + millicores <= limits.cores * 1000:
        return ""
    return f"{where} may use {limits.cores} cores at once: it uses {use.millicores / 1000:g}, and this wants {millicores / 1000:g} more"
