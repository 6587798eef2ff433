"""Finds the workload that a dependency names: that of the object which has the name now.

An object that is being deleted does not count, since its name is about to be free. An object that the queue
does not manage has no workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluxqueue.api.dependencies import DependencyKind
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.dependency_graph import TargetName
from fluxqueue.queue.model.groups import GROUP_UID, GroupKey, is_pod_group
from fluxqueue.queue.model.minicluster_jobs import owner_uid
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.start_conditions import TrackedDependency
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["DependencyTargets", "FoundTarget", "names_of"]


@dataclass(frozen=True, slots=True)
class FoundTarget:
    """The workload that has a name now, and the uid of the MiniCluster that it belongs to (empty for other
    kinds).
    """

    workload: Workload
    owner: str = ""


def names_of(workload: Workload) -> Iterable[tuple[DependencyKind, str]]:
    """Yield the kinds and names by which a dependency can name a workload."""
    if workload.kind == "Job":
        yield DependencyKind.JOB, workload.name
        yield DependencyKind.MINICLUSTER, workload.name
    elif is_pod_group(workload):
        yield DependencyKind.POD_GROUP, workload.name


class DependencyTargets:
    """Finds workloads by name and by uid."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    async def of_uids(self, uids: Iterable[str]) -> dict[str, Workload]:
        """Return workloads by uid, also those that have ended."""
        found = {uid: self._ledger.by_uid(uid) for uid in uids}
        missing = [uid for uid, row in found.items() if row is None]
        ended = await self._ledger.stored_workloads_by_uid(missing) if missing else []
        return {uid: row for uid, row in found.items() if row is not None} | {row.uid: row for row in ended}

    async def of_names(self, names: Iterable[TargetName]) -> dict[TargetName, FoundTarget]:
        """Return the workload of each name that an object has whose workload is known."""
        candidates = {name: self._candidates(name) for name in names}
        rows = await self.of_uids({uid for uids, _ in candidates.values() for uid in uids})
        found: dict[TargetName, FoundTarget] = {}
        for name, (uids, owner) in candidates.items():
            known = [rows[uid] for uid in uids if uid in rows]
            if known:
                found[name] = FoundTarget(max(known, key=lambda row: (row.submitted_at, row.id)), owner)
        return found

    def is_replaced(self, dependency: TrackedDependency, target: Workload) -> bool:
        """True if a MiniCluster is still there, but its Job that was the target was deleted to be made again
        from an edited spec.
        """
        if not dependency.owner or target.state is not State.CANCELLED:
            return False
        minicluster, job = (
            self._caches.miniclusters.get_by_uid(dependency.owner),
            self._caches.jobs.get_by_uid(target.uid),
        )
        if minicluster is None or minicluster.metadata.deletion_timestamp is not None:
            return False
        return job is None or job.metadata.deletion_timestamp is not None

    def _candidates(self, name: TargetName) -> tuple[list[str], str]:
        """Return the uids that the workload of a name can have, and the uid of the MiniCluster of this
        name.
        """
        if name.kind is DependencyKind.POD_GROUP:
            key = GroupKey(name.namespace, name.name)
            if (row := self._ledger.group(key)) is not None:
                return [row.uid], ""
            return [f"{GROUP_UID}{pod.metadata.uid}" for pod in self._caches.pods_of_group(key)], ""
        job = self._caches.jobs.get(name.namespace, name.name)
        if job is None or job.metadata.deletion_timestamp is not None:
            return [], ""
        if name.kind is DependencyKind.JOB:
            return [job.metadata.uid], ""
        owner = self._caches.minicluster_of(job)
        return (
            ([job.metadata.uid], owner.metadata.uid)
            if owner is not None and owner_uid(job) is not None
            else ([], "")
        )
