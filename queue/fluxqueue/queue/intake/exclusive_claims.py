"""Which workload may use a ReadWriteOncePod claim, which only one pod in the cluster can use at a time.

Of several workloads that name such a claim, the one that has nodes uses it. Otherwise it is for the first in order of submission among
those that could be matched. The others wait with that as their reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import Key
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.storage import claims_used
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.reasons import MATCHABLE_REASONS
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ExclusiveClaims"]


class ExclusiveClaims:
    """Decides which workload may use each ReadWriteOncePod claim.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    """

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger

    def assign(self, described: Sequence[NewWorkload]) -> list[NewWorkload]:
        """Return the descriptions; work whose claim another workload uses, or is to have first, gets that as its reason.

        Parameters
        ----------
        described
            What the intake read in one batch. A claim goes to the first of them that could be matched.
        """
        assigned: list[NewWorkload] = []
        taken: dict[Key, str] = {}
        for new in described:
            claims = (
                [claim for claim in self._claims_of(new) if self._caches.storage.is_exclusive(claim)] if new.reason is Reason.NONE else []
            )
            for claim in claims:
                if holder := taken.get(claim) or self._holder(claim, new):
                    message = (
                        f"{new.ref}: PersistentVolumeClaim {claim[0]}/{claim[1]} is for one pod at a time "
                        f"(ReadWriteOncePod), and {holder}: the work is matched when it is free"
                    )
                    new = replace(new, reason=Reason.WAITING_FOR_VOLUMES, message=message)
                    break
            else:
                taken.update((claim, f"{new.ref} is to have it first") for claim in claims)
            assigned.append(new)
        return assigned

    def _claims_of(self, new: NewWorkload) -> list[Key]:
        job = self._caches.jobs.get_by_uid(new.uid)
        if job is not None:
            return claims_used(new.namespace, job.spec.template.spec)
        return [claim for pod in self._pods_of(new) for claim in claims_used(new.namespace, pod.spec)]

    def _pods_of(self, new: NewWorkload) -> list[Pod]:
        if new.release_mode is ReleaseMode.GROUP:
            return self._caches.pods_of_group(GroupKey(new.namespace, new.name, new.kind))
        pod = self._caches.pods.get_by_uid(new.uid)
        return [pod] if pod is not None else []

    def _holder(self, claim: Key, new: NewWorkload) -> str:
        """Return who uses a claim, or is to have it before a workload, in words; empty if nobody."""
        own = {new.uid, *(pod.metadata.uid for pod in self._pods_of(new))}
        for pod in self._caches.pods_with_claim(claim):
            if pod.spec.node_name and not pod.terminal and own.isdisjoint((pod.metadata.uid, owning_job_uid(pod))):
                return f"Pod {pod.metadata.namespace}/{pod.metadata.name} uses it"
        current = self._ledger.by_uid(new.uid)
        ahead = [row for row in self._rows_with(claim) if row.uid not in own and _is_ahead(row, current)]
        first = min(ahead, key=lambda row: (row.state is State.PENDING, row.submitted_at, row.id), default=None)
        return f"{first.ref} is to have it first" if first is not None else ""

    def _rows_with(self, claim: Key) -> Iterator[Workload]:
        objects: list[Job | Pod] = [*self._caches.jobs_with_claim(claim), *self._caches.pods_with_claim(claim)]
        uids = [each.metadata.uid for each in objects]
        groups = [key for each in objects if isinstance(each, Pod) and (key := group_of(each)) is not None]
        for row in (*(self._ledger.by_uid(uid) for uid in uids), *(self._ledger.group(key) for key in groups)):
            if row is not None:
                yield row


def _is_ahead(row: Workload, other: Workload | None) -> bool:
    """True if a workload has nodes, or comes before another pending one; None is a new one, which comes last."""
    if row.state is not State.PENDING:
        return True
    return row.reason in MATCHABLE_REASONS and (other is None or (row.submitted_at, row.id) < (other.submitted_at, other.id))
