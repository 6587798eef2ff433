"""Enqueues the work that must be described again because a claim of devices, a template of claims or a class
of devices changed.

Thousands may share a claim or a template, and any user may change one in their namespace, or end the pods
that wait for it, one after the other. So the users of one are enqueued with a rest, as those of a volume's
claim are (``claim_watch``).
"""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.devices import ANY_CLAIM, DEVICE_CLAIMS, DeviceSource, sources_used
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.tasks.rests import Turns

__all__ = ["DeviceWatch"]

_REST_OF_USER_S = 2e-3
"""A few times what it takes to describe one."""


class DeviceWatch:
    """Follows what the device claims of work depend on.

    Parameters
    ----------
    caches
        The cluster.
    enqueue
        Called with the uid of each object, and the key of each group, to be described again.
    """

    def __init__(self, caches: Caches, enqueue: Callable[[str | GroupKey], None]) -> None:
        self._caches = caches
        self._enqueue = enqueue
        self._turns: Turns[DeviceSource] = Turns(self._enqueue_users_now, _REST_OF_USER_S)

    def prune(self) -> None:
        """Forget the claims and templates whose users do not rest any more."""
        self._turns.prune()

    def claim_changed(self, change: Change[ResourceClaim]) -> None:
        """Enqueue the users of a claim if it came, went, or can be reached from other nodes than before."""
        old, new = change.old, change.new
        if old is None or new is None or _reach(old) != _reach(new):
            meta = change.obj.metadata
            self._enqueue_users((DEVICE_CLAIMS, meta.namespace, meta.name))

    def template_changed(self, change: Change[ResourceClaimTemplate]) -> None:
        """Enqueue the users of a template of claims."""
        meta = change.obj.metadata
        self._enqueue_users(("resourceclaimtemplates", meta.namespace, meta.name))

    def class_changed(self, _change: Change[DeviceClass]) -> None:
        """Enqueue the users of all claims: any may name the class."""
        self._enqueue_users(ANY_CLAIM)

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue the users of claims that a Job left without devices."""
        if change.new is None or change.new.finished:
            self._enqueue_waiting(change.obj.metadata.namespace, change.obj.spec.template.spec)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the users of claims that a pod left without devices."""
        if change.new is None or change.new.terminal:
            self._enqueue_waiting(change.obj.metadata.namespace, change.obj.spec)

    def _enqueue_waiting(self, namespace: str, spec: PodSpec) -> None:
        """Enqueue the users of claims that work had first and that got no devices before it ended."""
        for source in sources_used(namespace, spec):
            if source[0] == DEVICE_CLAIMS and self._caches.devices.is_unallocated(*source[1:]):
                self._enqueue_users(source)

    def _enqueue_users(self, source: DeviceSource) -> None:
        self._turns.due(source)

    def _enqueue_users_now(self, source: DeviceSource) -> int:
        """Enqueue the users of a claim, and return how many objects were looked at."""
        users = self._caches.users_of_devices(source)
        for user in users:
            if not isinstance(user, Pod):
                self._enqueue(user.metadata.uid)
            elif not user.terminal:
                self._enqueue(owning_job_uid(user) or user.metadata.uid)
                if (key := self._caches.named_group_of(user)) is not None:
                    self._enqueue(key)
        return len(users)


def _reach(claim: ResourceClaim) -> object:
    allocation = claim.status.allocation
    return None if allocation is None else (allocation.node_selector,)
