"""What the statuses of FluxQueues, FluxAccounts and FluxReservations have in common."""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectCondition, PartialObject

__all__ = ["WorkStatus"]


class WorkStatus(PartialObject, frozen=True):
    """How many workloads wait and run, on how many nodes, and conditions about the spec."""

    observed_generation: int = 0
    pending: int = 0
    running: int = 0
    nodes_in_use: int = 0
    conditions: list[ObjectCondition] | None = None
