"""Enqueues the work that must be described again because a claim, volume, class or CSI driver changed.

The pods and Jobs that name a claim tell which work that is. Work that waits for a ReadWriteOncePod claim is also described again when a
pod or Job that names the claim changes. The sweep finds what is missed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.kube.kinds import Key
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.storage import claims_used
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ClaimWatch"]


class ClaimWatch:
    """Follows what the volumes of waiting work depend on.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    enqueue
        Called with the uid of each object, and the key of each group, to be described again.
    """

    def __init__(self, caches: Caches, ledger: Ledger, enqueue: Callable[[str | GroupKey], None]) -> None:
        self._caches = caches
        self._ledger = ledger
        self._enqueue = enqueue
        self._drivers = caches.storage.drivers
        storage = caches.storage
        storage.claims.add_handler(self._claim_changed)
        storage.volumes.add_handler(self._volume_changed)
        storage.classes.add_handler(self._class_changed)
        storage.csi_nodes.add_handler(self._csi_node_changed)
        caches.pods.add_handler(self._pod_changed)
        caches.jobs.add_handler(self._job_changed)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        if change.old is None or change.new is None or _placement(change.old) != _placement(change.new):
            self._enqueue_users(_key(change.obj))

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        """Enqueue the users of a bound volume's claim, and of all claims that could have a volume of this class."""
        volume = change.obj
        if (claim := volume.spec.claim_ref) is not None:
            self._enqueue_users((claim.namespace, claim.name))
        for unbound in self._caches.storage.unbound(volume.spec.storage_class_name):
            self._enqueue_users(_key(unbound))

    def _class_changed(self, change: Change[StorageClass]) -> None:
        for claim in self._caches.storage.unbound(change.obj.metadata.name):
            self._enqueue_users(_key(claim))
        self._enqueue_waiting()  # it may be the class of ephemeral volumes

    def _csi_node_changed(self, _change: Change[CSINode]) -> None:
        """Enqueue the users of all claims if the set of limited drivers changed: only volumes of such drivers are counted."""
        if self._drivers != self._caches.storage.drivers:
            self._drivers = self._caches.storage.drivers
            for claim in self._caches.storage.claims.list():
                self._enqueue_users(_key(claim))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is None or new.terminal or (old is not None and old.spec.node_name != new.spec.node_name):
            self._enqueue_users_of_exclusive(claims_used(change.obj.metadata.namespace, change.obj.spec))

    def _job_changed(self, change: Change[Job]) -> None:
        if change.new is None or change.new.finished:
            self._enqueue_users_of_exclusive(claims_used(change.obj.metadata.namespace, change.obj.spec.template.spec))

    def _enqueue_users(self, claim: Key) -> None:
        for job in self._caches.jobs_with_claim(claim):
            self._enqueue(job.metadata.uid)
        for pod in self._caches.pods_with_claim(claim):
            if pod.terminal:
                continue
            self._enqueue(owning_job_uid(pod) or pod.metadata.uid)
            if (key := group_of(pod)) is not None:
                self._enqueue(key)

    def _enqueue_users_of_exclusive(self, claims: Iterable[Key]) -> None:
        for claim in claims:
            if self._caches.storage.is_exclusive(claim):
                self._enqueue_users(claim)

    def _enqueue_waiting(self) -> None:
        for workload in self._ledger.all():
            if workload.reason is Reason.WAITING_FOR_VOLUMES:
                self._enqueue(workload.uid)


def _key(claim: PersistentVolumeClaim) -> Key:
    return claim.metadata.namespace, claim.metadata.name


def _placement(claim: PersistentVolumeClaim) -> tuple[object, ...]:
    """Return everything of a claim that placement depends on."""
    return claim.spec, claim.bound, claim.status.phase, claim.selected_node, claim.metadata.deletion_timestamp
