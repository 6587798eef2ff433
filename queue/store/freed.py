"""What the queue has freed and the graph still holds, collected for the caller that speaks to Fluxion."""

from __future__ import annotations

from dataclasses import dataclass, field

from fluxqueue.queue.model.records import FluxionJobId, Slot

__all__ = ["Freed"]


@dataclass(slots=True)
class Freed:
    """What the graph still holds although the queue has freed it.

    Attributes
    ----------
    jobs, slots
        Whole allocations, and single slots of others.
    nodes
        Nodes where pods may still run that were counted through a slot until now.
    """

    jobs: set[FluxionJobId] = field(default_factory=set)
    slots: dict[FluxionJobId, list[Slot]] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.slots or self.nodes)

    def add(self, other: Freed) -> None:
        """Add what could not be freed."""
        self.jobs |= other.jobs
        self.nodes |= other.nodes
        for jobid, slots in other.slots.items():
            self.slots.setdefault(jobid, []).extend(slots)
