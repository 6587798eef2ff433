"""Enqueues the work that must be described again because a claim, volume, class or CSI driver changed.

The pods and Jobs that name a claim tell which work that is. Work that waits for a ReadWriteOncePod claim is
also described again when a pod or Job that names the claim changes. The sweep finds what is missed in
between.

Thousands may name one claim, or wait for volumes of one class, and each of them changes it. So after many
were enqueued, the next change is noted, and all of them are enqueued once, after a rest.
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
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.rests import Turns

__all__ = ["ClaimWatch"]

_REST_OF_USER_S = 2e-3
"""A few times what it takes to describe one: of 1,000 users of a claim,
all are described again every 2 s at most."""

_Concern = Key | str
"""A claim, or the name of a class, which concerns all its claims without a volume."""


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
        self._turns: Turns[_Concern] = Turns(self._enqueue_users_now, _REST_OF_USER_S)

    def prune(self) -> None:
        """Forget the claims and classes that do not rest any more."""
        self._turns.prune()

    def claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        """Enqueue the users of a claim if it came, went, or is placed otherwise."""
        if change.old is None or change.new is None or _placement(change.old) != _placement(change.new):
            self._enqueue_users(_key(change.obj))

    def volume_changed(self, change: Change[PersistentVolume]) -> None:
        """Enqueue the users of a volume's claim, or of all claims that could have a volume of this class."""
        if (claim := change.obj.spec.claim_ref) is not None:
            self._enqueue_users((claim.namespace, claim.name))
        if any(volume is not None and volume.spec.claim_ref is None for volume in (change.old, change.new)):
            self._enqueue_users(change.obj.spec.storage_class_name)

    def class_changed(self, change: Change[StorageClass]) -> None:
        """Enqueue the users of all claims that could have a volume of this class."""
        self._enqueue_users(change.obj.metadata.name)
        self._enqueue_waiting()  # it may be the class of ephemeral volumes

    def csi_node_changed(self, _change: Change[CSINode]) -> None:
        """Enqueue the users of all claims if the set of limited drivers changed:
        only volumes of such drivers are counted.
        """
        if self._drivers != self._caches.storage.drivers:
            self._drivers = self._caches.storage.drivers
            for claim in self._caches.storage.claims.list():
                self._enqueue_users(_key(claim))

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the users of claims that one pod or node has at a time, when a pod was bound or ended."""
        old, new = change.old, change.new
        if new is None or new.terminal or (old is not None and old.spec.node_name != new.spec.node_name):
            self._enqueue_users_of_exclusive(claims_used(change.obj.metadata.namespace, change.obj.spec))

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue the users of such claims when a Job ended."""
        if change.new is None or change.new.finished:
            self._enqueue_users_of_exclusive(
                claims_used(change.obj.metadata.namespace, change.obj.spec.template.spec)
            )

    def _enqueue_users(self, concern: _Concern) -> None:
        self._turns.due(concern)

    def _enqueue_users_now(self, concern: _Concern) -> int:
        claims = map(_key, self._caches.storage.unbound(concern)) if isinstance(concern, str) else [concern]
        return sum(self._enqueue_users_of(claim) for claim in claims)

    def _enqueue_users_of(self, claim: Key) -> int:
        """Enqueue the users of a claim, and return how many objects were looked at."""
        jobs, pods = self._caches.jobs_with_claim(claim), self._caches.pods_with_claim(claim)
        for job in jobs:
            self._enqueue(job.metadata.uid)
        for pod in pods:
            if pod.terminal:
                continue
            self._enqueue(owning_job_uid(pod) or pod.metadata.uid)
            if (key := self._caches.named_group_of(pod)) is not None:
                self._enqueue(key)
        return len(jobs) + len(pods)

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
