"""Which pods go on without some of their siblings, and with how few: read from the pods and, of gangs of
other projects, from the objects that say their size (`fluxqueue.queue.model.shrinkable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.groups import group_of_workload
from fluxqueue.queue.model.owner_handles import handle_of
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner, replica_owner_of
from fluxqueue.queue.model.shrinkable import Shrinking, shrinking_of_job
from fluxqueue.queue.model.sources.registry import source_named
from fluxqueue.queue.model.victim_views import Floor, floor_of

__all__ = ["Floors"]


class Floors:
    """Reads floors from the caches."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._leasts: tuple[Any, Mapping[str, int]] = None, {}
        """The object that was read last: the pods of a gang are read one after the other."""

    def of_pod(self, pod: Pod) -> Floor | None:
        """Return the floor of a pod; None if its owner goes on only with all."""
        if replica_owner_of(pod) is not None:
            return floor_of(pod)
        key = self._caches.group_of(pod)
        if key is None or not key.source:
            return None
        source = source_named(key.source)
        obj = self._caches.gang_object(source, key, [pod]).obj
        if obj is None or not source.belongs_to(pod, obj):
            return None
        if self._leasts[0] is not obj:
            self._leasts = obj, source.leasts_of(obj)
        role = source.role_of(pod)
        least = self._leasts[1].get(role, 0)
        if not least:
            return None
        owner = ReplicaOwner(key.namespace, source.kind, key.name)
        as_whole = handle_of(source.api_version, source.kind) is not None
        return Floor(owner, least, role, stays=source.stays(pod), as_whole=as_whole)

    def alike(self, pod: Pod, floor: Floor) -> list[Pod]:
        """Return the pods, of any phase, of which so many are to run as the floor of one of them says."""
        key = self._caches.group_of(pod) if replica_owner_of(pod) is None else None
        if key is None:
            return self._caches.pods_of_owner(floor.owner)
        role_of = source_named(key.source).role_of
        return [each for each in self._caches.pods_of_group(key) if role_of(each) == floor.role]

    def of_gang(self, gang: Workload) -> Mapping[str, Floor]:
        """Return the floors of the pods of a gang, also of those that were matched alone, by uid."""
        key = group_of_workload(gang)
        pods = self._caches.pods_of_group(key) if key is not None and key.source else ()
        found = ((pod, self.of_pod(pod)) for pod in pods)
        return {pod.metadata.uid: floor for pod, floor in found if floor is not None}

    def spare(self, leaving: Iterable[Pod], ends: Callable[[Pod], bool]) -> list[Pod]:
        """Return those of some pods that may end while as many others run as their floors say;
        others that end in any case do not count.
        """
        left: dict[tuple[ReplicaOwner, str], int] = {}
        chosen: list[Pod] = []
        for pod in leaving:
            if (floor := self.of_pod(pod)) is None or not self.runs(pod):
                chosen.append(pod)
                continue
            if floor.key not in left:
                others = self.alike(pod, floor)
                left[floor.key] = sum(self.runs(each) and not ends(each) for each in others) - floor.least
            if left[floor.key] > 0:
                left[floor.key] -= 1
                chosen.append(pod)
        return chosen

    def runs(self, pod: Pod) -> bool:
        """True if a pod counts as running: it is on a node that reports."""
        running = pod.active and pod.status.phase == "Running"
        return running and not self._caches.lost(pod.spec.node_name or "")

    def of_job(self, workload: Workload) -> Shrinking:
        """Return how a Job goes on with fewer pods."""
        job = self._caches.jobs.get_by_uid(workload.uid)
        minicluster = self._caches.minicluster_of(job) if job is not None else None
        return shrinking_of_job(workload, minicluster)
