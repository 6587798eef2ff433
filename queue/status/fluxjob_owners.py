"""Who owns a FluxJob, so that garbage collection removes it: its object, or pods of its group."""

from __future__ import annotations

from typing import Any

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FluxJobOwners"]

_OWNERS = 100
"""Of a pod group: a FluxJob whose owners are all deleted is created again as long as other pods of the group
exist."""


class FluxJobOwners:
    """The owners of FluxJobs, as the caches have them."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    def references(self, workload: Workload) -> list[dict[str, Any]]:
        """Return the owner references: its object, or pods of its group.
        The FluxJob is deleted with the last of them.
        """
        if workload.release_mode is not ReleaseMode.GROUP:
            return [_owner(workload.api_version, workload.kind, workload.name, workload.uid)]
        return [
            _owner("v1", "Pod", pod.metadata.name, pod.metadata.uid)
            for pod in self._members(workload)[:_OWNERS]
        ]

    def lack(self, present: FluxJob, workload: Workload) -> bool:
        """Return whether garbage collection would never remove it, or would although pods of its group,
        such as later ones, are left.
        """
        if not present.metadata.owner_references:
            return self.object_exists(workload)
        if workload.release_mode is not ReleaseMode.GROUP:
            return False
        members = {pod.metadata.uid for pod in self._members(workload)}
        owning = members.intersection(owner.uid for owner in present.metadata.owner_references)
        return len(owning) < min(len(members), _OWNERS)

    def _members(self, workload: Workload) -> list[Pod]:
        """Return the pods of a group that are not being deleted."""
        members = self._caches.members_of(workload, self._ledger.allocation(workload.id))
        return [pod for pod in members if pod.metadata.deletion_timestamp is None]

    def object_exists(self, workload: Workload) -> bool:
        """True if its object is there and is not being deleted."""
        if workload.release_mode is ReleaseMode.GROUP:
            return bool(self._members(workload))
        store = self._caches.jobs if workload.kind == "Job" else self._caches.pods
        item = store.get_by_uid(workload.uid)
        return item is not None and item.metadata.deletion_timestamp is None


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": False}
