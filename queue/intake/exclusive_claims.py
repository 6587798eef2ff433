"""Which workload may use a claim that only one can use now.

That is a ReadWriteOncePod claim, which only one pod in the cluster can use at a time, and a claim of devices
that has none yet: its first pod decides where they are. Of several workloads that name such a claim, the one
that has nodes uses it. Otherwise it is for the first in order of submission among those that could be
matched. The others wait with that as their reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.devices import DEVICE_CLAIMS, sources_used
from fluxqueue.queue.cluster.storage import claims_used
from fluxqueue.queue.model.groups import group_key
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.reasons import MATCHABLE_REASONS
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ExclusiveClaims"]


_VOLUMES: Final = "persistentvolumeclaims"
_SAID: Final = {
    _VOLUMES: (
        "PersistentVolumeClaim {}/{} is for one pod at a time (ReadWriteOncePod), and {}: "
        "the work can start when it is free"
    ),
    DEVICE_CLAIMS: "ResourceClaim {}/{} has no devices yet, and {}: the work can start when it has them",
}


class _Claim(NamedTuple):
    """A claim of volumes or devices."""

    plural: str
    namespace: str
    name: str


class _Users(NamedTuple):
    """Who may have a claim, in this order: pods that use it, and workloads that name it;
    those that have nodes, then by submission.
    """

    bound: tuple[Pod, ...]
    rows: tuple[Workload, ...]


class ExclusiveClaims:
    """Decides which workload may use each claim that is for one at present."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    def assign(self, described: Sequence[NewWorkload]) -> list[NewWorkload]:
        """Return the descriptions; work whose claim another workload uses, or is to have first, gets that as
        its reason.

        Parameters
        ----------
        described
            What the intake read in one batch. A claim goes to the first of them that could be matched.
        """
        assigned: list[NewWorkload] = []
        taken: dict[_Claim, str] = {}
        users: dict[_Claim, _Users] = {}  # found once: thousands of workloads may name one claim
        for new in described:
            claims = self._claims_of(new) if new.reason is Reason.NONE else []
            for claim in claims:
                if claim not in users:
                    users[claim] = self._users_in_order(claim)
                if holder := taken.get(claim) or self._holder(users[claim], new):
                    message = f"{new.ref}: {_SAID[claim.plural].format(claim.namespace, claim.name, holder)}"
                    new = replace(new, reason=Reason.WAITING_FOR_VOLUMES, message=message)
                    break
            else:
                taken.update((claim, f"{new.ref} is to have it first") for claim in claims)
            assigned.append(new)
        return assigned

    def _claims_of(self, new: NewWorkload) -> list[_Claim]:
        """Return the claims of a workload that only one can use now."""
        job = self._caches.jobs.get_by_uid(new.uid)
        specs: list[PodSpec] = (
            [job.spec.template.spec] if job is not None else [pod.spec for pod in self._pods_of(new)]
        )
        storage, devices = self._caches.storage, self._caches.devices
        found = [
            _Claim(_VOLUMES, *key)
            for spec in specs
            for key in claims_used(new.namespace, spec)
            if storage.is_exclusive(key)
        ]
        named = {
            source
            for spec in specs
            for source in sources_used(new.namespace, spec)
            if source[0] == DEVICE_CLAIMS
        }
        return [*found, *(_Claim(*source) for source in sorted(named) if devices.is_unallocated(*source[1:]))]

    def _pods_of(self, new: NewWorkload) -> list[Pod]:
        if new.release_mode is ReleaseMode.GROUP:
            return self._caches.pods_of_group(group_key(new))
        pod = self._caches.pods.get_by_uid(new.uid)
        return [pod] if pod is not None else []

    def _users_of(self, claim: _Claim) -> list[Job | Pod]:
        if claim.plural == DEVICE_CLAIMS:
            return self._caches.users_of_devices(claim)
        return [*self._caches.jobs_with_claim(claim[1:]), *self._caches.pods_with_claim(claim[1:])]

    def _users_in_order(self, claim: _Claim) -> _Users:
        bound = (
            each
            for each in self._users_of(claim)
            if isinstance(each, Pod) and each.spec.node_name and not each.terminal
        )
        rows = {row.id: row for row in self._rows_with(claim)}.values()
        return _Users(
            tuple(bound),
            tuple(sorted(rows, key=lambda row: (row.state is State.PENDING, row.submitted_at, row.id))),
        )

    def _holder(self, users: _Users, new: NewWorkload) -> str:
        """Return who uses a claim, or is to have it before a workload, in words; empty if nobody."""
        own = {new.uid, *(pod.metadata.uid for pod in self._pods_of(new))}
        for pod in users.bound:
            if own.isdisjoint((pod.metadata.uid, owning_job_uid(pod))):
                return f"Pod {pod.metadata.namespace}/{pod.metadata.name} uses it"
        current = self._ledger.by_uid(new.uid)
        first = next((row for row in users.rows if row.uid not in own and _is_ahead(row, current)), None)
        return f"{first.ref} is to have it first" if first is not None else ""

    def _rows_with(self, claim: _Claim) -> Iterator[Workload]:
        objects = self._users_of(claim)
        uids = [each.metadata.uid for each in objects]
        groups = [
            key
            for each in objects
            if isinstance(each, Pod) and (key := self._caches.named_group_of(each)) is not None
        ]
        for row in (
            *(self._ledger.by_uid(uid) for uid in uids),
            *(self._ledger.group(key) for key in groups),
        ):
            if row is not None:
                yield row


def _is_ahead(row: Workload, other: Workload | None) -> bool:
    """True if a workload has nodes, or comes before another pending one;
    None is a new one, which comes last.
    """
    if row.state is not State.PENDING:
        return True
    if row.reason not in MATCHABLE_REASONS or row.left_out:
        return False
    return other is None or (row.submitted_at, row.id) < (other.submitted_at, other.id)
