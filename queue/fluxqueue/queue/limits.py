"""What the workloads of a queue, and of each namespace in it, may use at once.

A workload over a limit stands aside with the reason `QueueLimit`: it does not close its queue for others, who may be under theirs. Limits
on running workloads and cores are known before a match, so those are not even offered to the matcher. How many nodes a workload takes
is known only by its answer, because it may share nodes that its queue uses already: that limit is checked on the nodes that were found,
before the grant is stored, and a grant over it is given back. So a limit is never exceeded, not even for a moment.

What runs is counted once at the beginning of a cycle; what the cycle starts is added as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from fluxqueue.api.fluxqueues import Limits, QueueLimits
from fluxqueue.queue.records import Allocation, SlotState, Workload

__all__ = ["Quotas", "millicores_of"]

_Key = tuple[str, str | None]
"""A queue, or a queue and a namespace in it."""


@dataclass(slots=True)
class _Use:
    running: int = 0
    millicores: int = 0
    nodes: set[str] = field(default_factory=set)


class Quotas:
    """The use of one cycle, measured against the limits.

    Parameters
    ----------
    limits
        Of the queues that have any.
    live
        Workloads that hold an allocation. Only those of limited queues are counted, so without limits this costs nothing.

    Examples
    --------
    >>> quotas = Quotas(limits, ledger.live())
    >>> quotas.refusal(workload) or quotas.excess(workload, hosts) or quotas.take(workload, hosts)
    """

    def __init__(self, limits: Mapping[str, QueueLimits], live: Iterable[tuple[Workload, Allocation]]) -> None:
        self._limits = limits
        self._uses: dict[_Key, _Use] = {}
        if limits:
            for workload, allocation in live:
                self.take(workload, (slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED))

    def refusal(self, workload: Workload) -> str:
        """Why it may not be matched now, in a sentence; empty if it may."""
        return next(
            (
                sentence
                for where, limits, use in self._concerning(workload)
                if (sentence := _over_running(where, limits, use) or _over_cores(where, limits, use, millicores_of(workload.jobspec)))
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
            if limits.nodes is not None and (wanted := len(use.nodes | found)) > limits.nodes:
                return f"{where} may use {limits.nodes} nodes at once: it uses {len(use.nodes)}, and {wanted} with this"
        return ""

    def take(self, workload: Workload, hosts: Iterable[str]) -> None:
        """Count a workload that holds these nodes from now on."""
        if workload.queue not in self._limits:
            return
        nodes, millicores = set(hosts), millicores_of(workload.jobspec)
        for key in ((workload.queue, None), (workload.queue, workload.namespace)):
            use = self._uses.setdefault(key, _Use())
            use.running += 1
            use.millicores += millicores
            use.nodes |= nodes

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


def _over_running(where: str, limits: Limits, use: _Use) -> str:
    if limits.running is None or use.running < limits.running:
        return ""
    return f"{where} may run {limits.running} workloads at once, and {use.running} run"


def _over_cores(where: str, limits: Limits, use: _Use, millicores: int) -> str:
    if limits.cores is None or use.millicores + millicores <= limits.cores * 1000:
        return ""
    return f"{where} may use {limits.cores} cores at once: it uses {use.millicores / 1000:g}, and this wants {millicores / 1000:g} more"


@lru_cache(maxsize=16_384)
def millicores_of(jobspec: str) -> int:
    """All cpu a jobspec asks for, in millicores, as requested (not rounded to vertices)."""
    return sum(_millicores(resource) for resource in orjson.loads(jobspec).get("resources") or ())


def _millicores(resource: Mapping[str, Any]) -> int:
    count = int(resource.get("count", 1))
    if resource.get("type") == "cpu":
        return count
    return count * sum(_millicores(member) for member in resource.get("with") or ())
