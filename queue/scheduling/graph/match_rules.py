"""Rules about other pods, as a match needs them.

`fluxqueue.queue.scheduling.graph.pod_rule_tracker.PodRuleTracker` implements them for a cluster.
`NoMatchRules` serves the simulator, which knows no pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import Workload, WorkloadId

__all__ = ["MatchRules", "NoMatchRules"]


class MatchRules(Protocol):
    """Rules about other pods at the time of a cycle."""

    @property
    def changed(self) -> bool:
        """True if something changed since the last `begin_cycle` that rules of pending work depend on."""
        ...

    @property
    def individual(self) -> Set[WorkloadId]:
        """Workloads of this cycle without rules that rules of other pods keep off nodes.
        Their refusals hold for no other workload.
        """
        ...

    def begin_cycle(self) -> bool:
        """Forget what the former cycle assumed; return whether rules may admit other nodes than before."""
        ...

    def applies_to(self, workload: Workload) -> bool:
        """True if a workload is matched under any rule."""
        ...

    def constrained(self, workload: Workload) -> tuple[str, str]:
        """Return the request as the rules constrain it now, and an empty string;
        or an empty request and why no node is admitted.
        """
        ...

    def without(self, workloads: Iterable[WorkloadId]) -> AbstractContextManager[None]:
        """Leave out the pods of running workloads, and their slots that wait for pods, meanwhile."""
        ...

    def keeps_off(self, workload: Workload, other: Workload) -> bool:
        """True if a workload, once it is placed, keeps another off some nodes."""
        ...

    def violation(self, workload: Workload, shares: Sequence[NodeShare]) -> str:
        """Return why the workload may not have these nodes; empty if it may."""
        ...

    def assume(self, workload: Workload, shares: Sequence[NodeShare]) -> None:
        """Count the pods of a workload on these nodes from now on."""
        ...

    def mark_temporary(self, changes: Iterable[ReasonChange]) -> list[ReasonChange]:
        """Return the changes with *never* replaced by *not now* where only rules about other pods are in the
        way.
        """
        ...


class NoMatchRules:
    """No rules at all."""

    def __init__(self) -> None:
        self.changed = False
        self.individual: frozenset[WorkloadId] = frozenset()

    def begin_cycle(self) -> bool:
        """Return False: nothing changes."""
        return False

    def applies_to(self, workload: Workload) -> bool:
        """Return False."""
        return False

    def constrained(self, workload: Workload) -> tuple[str, str]:
        """Return the request as it is."""
        return workload.jobspec, ""

    def without(self, workloads: Iterable[WorkloadId]) -> AbstractContextManager[None]:
        """Leave out nothing: no pod is known."""
        return nullcontext()

    def keeps_off(self, workload: Workload, other: Workload) -> bool:
        """Return False."""
        return False

    def violation(self, workload: Workload, shares: Sequence[NodeShare]) -> str:
        """Return nothing: every node is admitted."""
        return ""

    def assume(self, workload: Workload, shares: Sequence[NodeShare]) -> None:
        """Do nothing."""

    def mark_temporary(self, changes: Iterable[ReasonChange]) -> list[ReasonChange]:
        """Return the changes as they are."""
        return list(changes)
