"""Tells work that is preempted with a grace until when it may go on, so that it can save what it has.

Each running pod gets the annotation ``fluxqueue/preempt-at``, which a container reads from a downward API
volume, and the user's object, or the first pods of a group, a warning Event. Pods and groups get the Event
without a grace too: none reaches them later. The work is stopped when the grace is over
(`fluxqueue.queue.requeue.requeuer`), whether a pod was told or not. Level-triggered: a pod that has the
annotation with this time is not written again.

If nobody needs its nodes any more before that, the work goes on. Then the annotation is removed, and an Event
says so: whoever finds a pod with it that is not to stop does that.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.given_back import staying_slots
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.preemption_notices import grace_left_s, stop_time
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.withdrawals import notice_of
from fluxqueue.queue.release.patches import tell_preemption
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PreemptionNotices", "tell_pods"]

log = structlog.get_logger()

_WORKERS = 2


class PreemptionNotices:
    """Annotates the pods of preempted work."""

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("preemption-notices")
        self._reported: dict[WorkloadId, str] = {}
        self._noticed: set[WorkloadId] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._tell)

    def resync(self) -> None:
        """Check all evicted work, and all pods that are told to stop, as at start and in a sweep."""
        self._reported = {
            key: text for key, text in self._reported.items() if self._ledger.get(key) is not None
        }
        for workload, _ in (*self._ledger.evicting(), *self._ledger.giving_back()):
            self.workload_changed(workload.id)
        for pod in self._caches.pods.list():
            told = pod.metadata.annotation(names.PREEMPT_AT_ANNOTATION) is not None and pod.active
            if (
                told
                and (jobid := jobid_of(pod.metadata)) is not None
                and (row := self._ledger.by_jobid(jobid)) is not None
            ):
                self._keys.add(row.id)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue a workload that is told that it ends, or is no more."""
        workload, allocation, now = (
            self._ledger.get(workload_id),
            self._ledger.allocation(workload_id),
            self._ledger.clock(),
        )
        if workload is None or allocation is None:
            self._noticed.discard(workload_id)
        elif notice_of(workload, allocation, now) is not None:
            self._noticed.add(workload_id)
        elif workload_id in self._noticed and not workload.evicting:
            self._noticed.discard(workload_id)
            self._keys.add(workload_id)
        if workload is not None and (grace_left_s(workload, now) or _ends_without_requeue(workload)):
            self._keys.add(workload_id)

    async def _tell(self, workload_id: WorkloadId) -> float | None:
        workload = self._ledger.get(workload_id)
        grace = workload is not None and grace_left_s(workload, self._ledger.clock()) > 0
        if workload is None:
            return None
        if not grace and not _ends_without_requeue(workload):
            await self._tell_going_on(workload)
            return None
        at, allocation = stop_time(workload), self._ledger.allocation(workload_id)
        if self._reported.get(workload_id) != workload.message:
            self._reported[workload_id] = workload.message
            log.info("workload.preemption_told", workload=workload_id, uid=workload.uid, stop_at=at)
            for subject in subjects_of(workload, self._caches, allocation):
                self._recorder.record(
                    subject, "PreemptionNotice", workload.message, severity=Severity.WARNING
                )
        if not grace:
            return None
        await tell_pods(self._api, self._caches.pods_of_workload(workload, allocation), at)
        return None

    async def _tell_going_on(self, workload: Workload) -> None:
        """Tell work that goes on after it was told to stop."""
        allocation = self._ledger.allocation(workload.id)
        if allocation is None or workload.evicting:
            return
        staying = {slot.pod_uid for slot in staying_slots(workload, allocation)}
        pods = [
            pod
            for pod in self._caches.pods_of_workload(workload, allocation)
            if pod.metadata.uid in staying and pod.active
        ]
        told = [pod for pod in pods if pod.metadata.annotation(names.PREEMPT_AT_ANNOTATION) is not None]
        if self._reported.pop(workload.id, "") or told:
            message = self._ledger.why_going_on(workload.id) or (
                f"{workload.ref} goes on: it is not to make room for other work any more"
            )
            log.info("workload.told_to_go_on", workload=workload.id, uid=workload.uid, pods=len(told))
            for subject in subjects_of(workload, self._caches, allocation):
                self._recorder.record(subject, "PreemptionWithdrawn", message)
        await tell_pods(self._api, told, "")


async def tell_pods(api: Api, pods: Iterable[Pod], at: str) -> None:
    """Tell running pods until when they may go on, for good if that is empty;
    one that has been told is not written again.
    """
    for pod in pods:
        meta = pod.metadata
        if not pod.active or (meta.annotation(names.PREEMPT_AT_ANNOTATION) or "") == at:
            continue
        try:
            await api.patch(
                PODS,
                meta.name,
                tell_preemption(pod, at),
                namespace=meta.namespace,
                patch_type=PatchType.MERGE,
            )
        except (Conflict, NotFound):
            continue  # it is another pod now, or gone
        reach(CrashPoint.PREEMPTION_TOLD)


def _ends_without_requeue(workload: Workload) -> bool:
    """True for pods and groups that are preempted: their pods go, so no later Event reaches them."""
    return (
        workload.evicting
        and workload.reason is Reason.PREEMPTED
        and workload.release_mode in (ReleaseMode.POD, ReleaseMode.GROUP)
    )
