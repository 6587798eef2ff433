"""Allocations that this process granted and is about to release: the namespaces take turns.

A thousand Jobs of one person that start together are released in seconds. In the order of their grants, the
Job of somebody else would be the last of them.
"""

from __future__ import annotations

from fluxqueue.queue.model.records import FluxionJobId

__all__ = ["ReleaseTurns"]


class ReleaseTurns:
    """Allocations by namespace, in the order in which they were added."""

    def __init__(self) -> None:
        self._of: dict[str, dict[FluxionJobId, None]] = {}
        """Whose turn is next is first."""
        self._namespaces: dict[FluxionJobId, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, jobid: FluxionJobId) -> bool:
        return jobid in self._namespaces

    def add(self, namespace: str, jobid: FluxionJobId) -> None:
        """Add an allocation of a namespace."""
        self._namespaces[jobid] = namespace
        self._of.setdefault(namespace, {})[jobid] = None

    def discard(self, jobid: FluxionJobId) -> None:
        """Remove an allocation, if it is there."""
        if (namespace := self._namespaces.pop(jobid, None)) is not None:
            del self._of[namespace][jobid]
            if not self._of[namespace]:
                del self._of[namespace]

    def take(self) -> FluxionJobId:
        """Remove and return the next one; call it only if there is one."""
        namespace = next(iter(self._of))
        own = self._of[namespace]
        jobid = next(iter(own))
        self.discard(jobid)
        if own:
            self._of[namespace] = self._of.pop(namespace)  # the last in turn
        return jobid

    def clear(self) -> None:
        """Remove all."""
        self._of.clear()
        self._namespaces.clear()
