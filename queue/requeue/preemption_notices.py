"""Tells work that is preempted with a grace until when it may go on, so that it can save what it has.

Each running pod gets the annotation ``fluxqueue/preempt-at``, which a container reads from a downward API volume, and the user's object,
or the first pods of a group, a warning Event. Pods and groups get the Event without a grace too: none reaches them later. The work is
stopped when the grace is over (`fluxqueue.queue.requeue.requeuer`), whether a pod was told or not. Level-triggered: a pod that has the
annotation with this time is not written again.
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
from fluxqueue.queue.model.preemption_notices import grace_left_s, stop_time
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.release.patches import tell_preemption
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PreemptionNotices", "tell_pods"]

log = structlog.get_logger()

_WORKERS = 2


class PreemptionNotices:
    """Annotates the pods of preempted work.

    Parameters
    ----------
    api, caches, ledger
        The API server, the cluster and the queue.
    recorder
        For Events on the user's object.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("preemption-notices")
        self._reported: dict[WorkloadId, str] = {}
        ledger.subscribe(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._tell)

    def resync(self) -> None:
        """Check all evicted work, as at start and in a sweep."""
        self._reported = {key: text for key, text in self._reported.items() if self._ledger.get(key) is not None}
        for workload, _ in self._ledger.evicting():
            self._workload_changed(workload.id)

    def _workload_changed(self, workload_id: WorkloadId) -> None:
        workload = self._ledger.get(workload_id)
        if workload is not None and (grace_left_s(workload, self._ledger.clock()) or _ends_without_requeue(workload)):
            self._keys.add(workload_id)

    async def _tell(self, workload_id: WorkloadId) -> float | None:
        workload = self._ledger.get(workload_id)
        grace = workload is not None and grace_left_s(workload, self._ledger.clock()) > 0
        if workload is None or not (grace or _ends_without_requeue(workload)):
            return None
        at, allocation = stop_time(workload), self._ledger.allocation(workload_id)
        if self._reported.get(workload_id) != at:
            self._reported[workload_id] = at
            log.info("workload.preemption_told", workload=workload_id, uid=workload.uid, stop_at=at)
            for subject in subjects_of(workload, self._caches, allocation):
                self._recorder.record(subject, "PreemptionNotice", workload.message, severity=Severity.WARNING)
        if not grace:
            return None
        await tell_pods(self._api, self._caches.pods_of_workload(workload, allocation), at)
        return None


async def tell_pods(api: Api, pods: Iterable[Pod], at: str) -> None:
    """Tell running pods until when they may go on; one that has been told is not written again."""
    for pod in pods:
        meta = pod.metadata
        if not pod.active or meta.annotation(names.PREEMPT_AT_ANNOTATION) == at:
            continue
        try:
            await api.patch(PODS, meta.name, tell_preemption(pod, at), namespace=meta.namespace, patch_type=PatchType.MERGE)
        except (Conflict, NotFound):
            continue  # it is another pod now, or gone
        reach(CrashPoint.PREEMPTION_TOLD)


def _ends_without_requeue(workload: Workload) -> bool:
    """True for pods and groups that are preempted: their pods go, so no later Event reaches them."""
    return workload.evicting and workload.reason is Reason.PREEMPTED and workload.release_mode in (ReleaseMode.POD, ReleaseMode.GROUP)
