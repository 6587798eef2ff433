"""What the slots of released gangs of other projects are for:
which pods come first, and which are still to come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.cluster.later_jobs import labels_of_later_pods
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.pods import age
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.sources.gathering import GangPods, later_pods_of_source, placement_order
from fluxqueue.queue.model.sources.registry import source_named

__all__ = ["ForeignGangSlots"]


class ForeignGangSlots:
    """Answers for the tracker, from the caches alone."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def order(self, key: GroupKey, pods: Sequence[Pod]) -> Callable[[Pod], tuple[Any, ...]]:
        """Return a sort key of pods for slots: those that the gang needs first."""
        source = source_named(key.source)
        lookup = self._caches.gang_object(source, key, pods)
        if source.resource is not None and lookup.obj is None and not source.optional:
            return age
        return placement_order(GangPods(source, "", pods), lookup.obj)

    def later_slot_labels(self, workload: Workload, key: GroupKey) -> Counter[str] | None:
        """Return how many pods are still to be created, by the label of their slots;
        None if that is not known yet.
        """
        source = source_named(key.source)
        pods = self._caches.pods_of_group(key)
        lookup = self._caches.gang_object(source, key, pods)
        if lookup.readable is Readable.NOT_YET:
            return None
        if lookup.obj is None:
            return Counter()
        later = later_pods_of_source(GangPods(source, "", pods), lookup.obj)
        return labels_of_later_pods(later, workload, self._caches.cluster_context(key.namespace))

    def ended(self, key: GroupKey) -> bool:
        """True if the object that controls the pods of a gang is gone, so that none of them is replaced."""
        source = source_named(key.source)
        if not source.controllers:
            return False
        lookup = self._caches.gang_object(source, key, self._caches.pods_of_group(key))
        if lookup.readable is not Readable.YES or lookup.problem:
            return False
        return lookup.obj is None or lookup.obj.metadata.deletion_timestamp is not None
