"""What the store refuses, and why."""

from __future__ import annotations

__all__ = ["IllegalTransition", "PodAlreadyPlaced", "StaleLeader", "StoreError"]


class StoreError(Exception):
    """The store refused; nothing was changed."""


class StaleLeader(StoreError):
    """The epoch is not the newest of its shard: another leader has taken over, and this one must stop."""


class PodAlreadyPlaced(StoreError):
    """A pod was to stand in two slots at once."""


class IllegalTransition(StoreError):
    """A workload was to be moved along an arrow that `fluxqueue.queue.states` does not have."""
