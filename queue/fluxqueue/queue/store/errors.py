"""Changes that the store refuses. Nothing was changed then."""

from __future__ import annotations

__all__ = ["IllegalTransition", "PodAlreadyPlaced", "StaleLeader", "StoreError"]


class StoreError(Exception):
    """The store refused a change."""


class StaleLeader(StoreError):
    """The epoch is not the newest of its shard: another leader has taken over, and this one must stop."""


class PodAlreadyPlaced(StoreError):
    """A pod was to take two slots at once."""


class IllegalTransition(StoreError):
    """A workload was to be moved in a way that `fluxqueue.queue.model.states` does not have."""
