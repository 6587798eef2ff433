"""What the cluster shows of running work that may be preempted, of each kind, and which budgets of disruption
select its pods.

A Job is stopped by suspension, and so is a gang whose owner has a switch for it
(`fluxqueue.queue.model.owner_handles`). All other work is stopped by evicting its pods. So what a Job
controls is none by itself: each pod that is evicted would count as a failure of its Job. Nor are a pod of an
owner with such a switch that is matched alone, unless its owner goes on without it, and the pods of a
DaemonSet. In a namespace that the queue does not manage it may evict nothing.

Anybody with the role ``edit`` writes budgets, so what is read of them is bounded: too many in a namespace, or
one that is too long, count as one that allows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from fluxqueue.api.disruptionbudgets import PodDisruptionBudget
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.floors import Floors
from fluxqueue.queue.cluster.watched_objects import BY_NAMESPACE
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.owner_handles import OwnerHandle, handle_of, handle_of_owner
from fluxqueue.queue.model.pods import controlling_job
from fluxqueue.queue.model.preemption_notices import checkpoint_of
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload
from fluxqueue.queue.model.sources.gang_sources import api_group
from fluxqueue.queue.model.victim_views import (
    STARTING,
    BudgetShare,
    Floor,
    Return,
    VictimView,
    place_of,
    return_of,
)
from fluxqueue.queue.noderules.pod_rules import Selector, selector_of

__all__ = ["Victims"]

_MOST_BUDGETS: Final = 8
"""Of a namespace."""
_LONGEST_SELECTOR: Final = 64
"""Labels, expressions and values."""
_MOST_NAMESPACES: Final = 1000
"""Whose budgets are kept read."""

_NOT_MANAGED: Final = VictimView("in a namespace that is not managed")
_PART: Final = VictimView("a part of something, for which each evicted pod would count as a failure")
_NO_PODS: Final = VictimView("whose pods are not known")
_NO_RIGHT: Final = VictimView("whose owner may not be suspended: the right to it is missing")

_ReadBudgets = Sequence[tuple[PodDisruptionBudget, Selector]]


class Victims:
    """Reads running work from the caches.

    Parameters
    ----------
    caches
        The cluster.
    may_suspend
        Tells whether the queue has the right to suspend the owners of a kind.
    wall
        The time of day.
    """

    def __init__(
        self,
        caches: Caches,
        may_suspend: Callable[[OwnerHandle], bool],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._wall = wall
        self._caches = caches
        self._may_suspend = may_suspend
        self._floors = Floors(caches)
        self._read: dict[str, _ReadBudgets | None] = {}

    def view(self, workload: Workload, allocation: Allocation) -> VictimView:
        """Return what is shown of a workload."""
        if workload.release_mode is ReleaseMode.GROUP:
            return self._view_of_group(workload, allocation)
        if workload.release_mode is ReleaseMode.POD:
            return self._view_of_pod(workload)
        return self._view_of_job(workload)

    def budgets(self, workload: Workload, allocation: Allocation) -> Sequence[BudgetShare]:
        """Return the budgets of disruption that select pods of a workload which run or may still run; none of
        what is suspended.

        A pod that more than one budget selects cannot be evicted, so its workload is not allowed to be
        disrupted.
        """
        if workload.kind == "Job" or self._is_suspended(workload):
            return ()
        return self._shares(workload, allocation)

    def _shares(self, workload: Workload, allocation: Allocation) -> Sequence[BudgetShare]:
        """Return the budgets of disruption that select pods of a workload."""
        if (read := self._budgets_of(workload.namespace)) is None:
            return _nothing(workload.namespace)
        if not read:
            return ()
        counts = [0] * len(read)
        for pod in self._pods(workload, allocation):
            labels = pod.metadata.labels or {}
            chosen = [
                number for number, (_, selector) in enumerate(read) if pod.active and selector.matches(labels)
            ]
            if len(chosen) > 1:
                return _nothing(workload.namespace)
            for number in chosen:
                counts[number] += 1
        return [
            BudgetShare(workload.namespace, budget.metadata.name, count, budget.status.disruptions_allowed)
            for (budget, _), count in zip(read, counts, strict=True)
            if count
        ]

    def elastic_pods(self, workload: Workload) -> Mapping[str, datetime]:
        """Return since when each running pod of a Job, or of the owner of a pod, does what it has not saved,
        by uid; empty if none of them can end alone.

        A pod on a lost node does not run any more, so it does not count among those by which the work goes
        on.
        """
        if workload.kind == "Pod":
            pod = self._caches.pods.get_by_uid(workload.uid)
            floor = self._floors.of_pod(pod) if pod is not None else None
            return (
                self._running(self._floors.alike(pod, floor)) if pod is not None and floor is not None else {}
            )
        if workload.release_mode is ReleaseMode.GROUP:
            found = map(self._caches.pods.get_by_uid, self.floors(workload))
            return self._running(pod for pod in found if pod is not None)
        job = self._caches.jobs.get_by_uid(workload.uid) if workload.kind == "Job" else None
        if (
            job is None
            or job.spec.suspend
            or job.finished
            or job.metadata.deletion_timestamp
            or not self._caches.manages(workload.namespace)
        ):
            return {}
        if self._pinned_s(job) > 0:
            return {}
        pods = (pod for pod in self._caches.pods_of_job(workload.uid) if job_served_by(pod) is None)
        return self._running(pods, checkpoint_of(job.metadata))

    def floors(self, workload: Workload) -> Mapping[str, Floor]:
        """Return the floors of the pods of a gang, by uid."""
        return self._floors.of_gang(workload) if workload.release_mode is ReleaseMode.GROUP else {}

    def _running(self, pods: Iterable[Pod], saved: datetime | None = None) -> Mapping[str, datetime]:
        now, lost = self._wall(), cache(self._caches.lost)
        running = (pod for pod in pods if pod.active and pod.status.phase == "Running")
        return {
            pod.metadata.uid: _since(pod, saved, now) for pod in running if not lost(pod.spec.node_name or "")
        }

    def budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        """Read the budgets of the namespace again."""
        self._read.pop(change.obj.metadata.namespace, None)

    def _budgets_of(self, namespace: str) -> _ReadBudgets | None:
        """Return the budgets of a namespace with their selectors, which are read once;
        None if they are too many or too long.
        """
        if namespace not in self._read:
            budgets = self._caches.disruption_budgets.by_index(BY_NAMESPACE, namespace)
            bounded = len(budgets) <= _MOST_BUDGETS and all(
                _length(each.spec.selector) <= _LONGEST_SELECTOR for each in budgets
            )
            if len(self._read) >= _MOST_NAMESPACES:
                self._read.clear()
            self._read[namespace] = (
                [(each, selector_of(each.spec.selector)) for each in budgets] if bounded else None
            )
        return self._read[namespace]

    def _pods(self, workload: Workload, allocation: Allocation) -> list[Pod]:
        """Return the pods of a workload; of a group those in its slots, which are stopped with it."""
        if workload.release_mode is not ReleaseMode.GROUP:
            return self._caches.pods_of_workload(workload, allocation)
        found = (self._caches.pods.get_by_uid(slot.pod_uid or "") for slot in allocation.open_slots)
        return [pod for pod in found if pod is not None]

    def _is_suspended(self, workload: Workload) -> bool:
        """True if a gang is stopped by suspending its owner.
        Without the right to it, its pods can only be evicted.
        """
        handle = handle_of(workload.api_version, workload.kind)
        return handle is not None and self._may_suspend(handle)

    def _view_of_job(self, workload: Workload) -> VictimView:
        """Return what is shown of a Job.
        One that can give pods back is spared until it can: while it starts, it could only end.
        """
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is None:
            return VictimView()
        shrinking = self._floors.of_job(workload)
        if 0 < shrinking.least < workload.pods and (left_s := self._pinned_s(job)) > 0:
            return VictimView(STARTING, again_s=left_s)
        return VictimView(
            checkpoint=checkpoint_of(job.metadata),
            least=shrinking.least,
            place=0 if shrinking.last_first else None,
        )

    def _pinned_s(self, job: Job) -> float:
        """Return for how long the list in a Job's template pins new pods to its nodes:
        until then the nodes of some cannot be freed.
        """
        return (pin_until(job.spec.template.metadata) + MARGIN - self._wall()).total_seconds()

    def _view_of_pod(self, workload: Workload) -> VictimView:
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None:
            return _NO_PODS
        if (job := controlling_job(pod)) is not None:
            return replace(_PART, job=job.uid, place=place_of(pod))
        if not self._caches.manages(workload.namespace):
            return _NOT_MANAGED
        floor = self._floors.of_pod(pod)
        alone = floor is not None and not floor.stays
        if _is_never_alone(pod) or (handle_of_owner(pod.metadata.controller) is not None and not alone):
            return _PART
        return VictimView(
            returns=return_of(pod),
            checkpoint=checkpoint_of(pod.metadata),
            floor=floor,
            place=place_of(pod),
        )

    def _view_of_group(self, workload: Workload, allocation: Allocation) -> VictimView:
        pods = self._pods(workload, allocation)
        suspended = self._is_suspended(workload)
        if not pods:
            return _NO_PODS
        if not self._caches.manages(workload.namespace):
            return _NOT_MANAGED
        if not suspended and any(map(_is_never_alone, pods)):
            return _NO_RIGHT if handle_of(workload.api_version, workload.kind) is not None else _PART
        saved = [at for pod in pods if (at := checkpoint_of(pod.metadata)) is not None]
        returns = Return.WAITS if suspended else _return_of_group(pods)
        spares = any(self._floors.of_pod(pod) is not None for pod in pods) and not (
            suspended and any(each.pods > each.allowed for each in self._shares(workload, allocation))
        )
        return VictimView(returns=returns, checkpoint=max(saved, default=None), least=1 if spares else 0)


def _since(pod: Pod, saved_by_job: datetime | None, now: datetime) -> datetime:
    """Return since when a pod does what it has not saved."""
    start = _time(pod.status.start_time or pod.metadata.creation_timestamp) or now
    saved = [at for at in (saved_by_job, checkpoint_of(pod.metadata)) if at is not None]
    return min(max(start, *saved), now) if saved else min(start, now)


def _time(text: str | None) -> datetime | None:
    """Return a time as the API server writes it."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _is_never_alone(pod: Pod) -> bool:
    owner = pod.metadata.controller
    of_daemonset = owner is not None and (api_group(owner.api_version), owner.kind) == ("apps", "DaemonSet")
    return of_daemonset or controlling_job(pod) is not None


def _return_of_group(pods: Iterable[Pod]) -> Return:
    """Return what becomes of a group: it waits again only if all of its pods are created again."""
    returns = {return_of(pod) for pod in pods}
    if returns == {Return.REPLACED}:
        return Return.WAITS
    return Return.LOST if Return.LOST in returns else Return.UNSURE


def _nothing(namespace: str) -> Sequence[BudgetShare]:
    """Return a budget that allows nothing."""
    return (BudgetShare(namespace, "", 1, 0),)


def _length(selector: Mapping[str, Any] | None) -> int:
    selector = selector or {}
    expressions = selector.get("matchExpressions") or ()
    return len(selector.get("matchLabels") or ()) + sum(
        1 + len(each.get("values") or ()) for each in expressions
    )
