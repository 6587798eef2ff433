"""Ends pods of Jobs and gangs that go on with fewer, so that other work starts.

Which slots a Job gives back, and for whom, is stored first (`RequeueState.given_back`). Then, once the grace
of its queue is over, the pods in them end one by one, and count as no failures (`PodEvictor.end_of_job`).
Nothing else is needed. The slots end with the pods. What the Job controller creates instead is gated, waits
behind all other work, and is given up after a while like any pod by which a Job grows
(`fluxqueue.queue.scheduling.growth`). The pods of a gang are evicted, and what its owner creates instead
waits like all other work. Level-triggered: a pod in a slot that is given back ends, whoever chose
it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import structlog

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.floors import Floors
from fluxqueue.queue.model.given_back import due_ranks, given_back_message, leaving_ranks
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.preemption_notices import given_back_grace_s, given_back_until
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.requeue.disruptions import Disruptor
from fluxqueue.queue.requeue.pod_evictions import PodEvictor, is_counted
from fluxqueue.queue.requeue.preemption_notices import tell_pods
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["GiveBacks"]

log = structlog.get_logger()

_WORKERS = 2
_RETRY_S = 0.1
_RECHECK_S = 2.0


class GiveBacks:
    """Carries out what running Jobs give back.

    Parameters
    ----------
    api, caches, ledger
        The API server, the cluster and the queue.
    pods
        Ends pods.
    recorder
        For Events on the Jobs.
    """

    def __init__(
        self, api: Api, caches: Caches, ledger: Ledger, pods: PodEvictor, recorder: EventRecorder
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._pods = pods
        self._recorder = recorder
        self._floors = Floors(caches)
        self._disruptions = Disruptor(api, ledger)
        self._keys: WorkQueue[WorkloadId] = WorkQueue("give-backs")
        self._told: dict[WorkloadId, str] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._proceed)

    def resync(self) -> None:
        """Check all that is given back, as at start and in a sweep."""
        self._told = {key: text for key, text in self._told.items() if self._ledger.get(key) is not None}
        for workload, _ in self._ledger.giving_back():
            self._keys.add(workload.id)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue a workload that gives something back."""
        workload = self._ledger.get(workload_id)
        if workload is not None and given_back_message(workload):
            self._keys.add(workload_id)

    async def _proceed(self, workload_id: WorkloadId) -> float | None:
        workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
        if workload is None or allocation is None:
            return None
        leaving = leaving_ranks(workload, allocation)
        if workload.evicting:
            return None
        if self._ledger.withdrawing(workload_id):
            return _RETRY_S
        if leaving or any(map(self._ends_alone, self._caches.pods_of_workload(workload, allocation))):
            self._tell(workload)
        if not leaving:
            return None
        left_s = given_back_grace_s(workload, self._ledger.clock())
        due = due_ranks(workload) if left_s else leaving
        if left_s:
            await tell_pods(self._api, self._pods_in(allocation, leaving - due), given_back_until(workload))
        ending = self._pods_in(allocation, leaving & due)
        if workload.release_mode is ReleaseMode.GROUP:
            await self._disruptions.disrupt(workload.id, self._floors.spare(ending, self._ends_alone))
        else:
            for pod in self._that_may_end(workload, ending):
                await self._end(pod)
        return _RECHECK_S if ending or not left_s else left_s

    def _pods_in(self, allocation: Allocation, ranks: Set[int]) -> list[Pod]:
        """Return the pods in some slots that still run or are to run, the last slot first."""
        found = (
            self._caches.pods.get_by_uid(slot.pod_uid or "")
            for slot in reversed(allocation.open_slots)
            if slot.rank in ranks
        )
        return [pod for pod in found if pod is not None and pod.active]

    def _that_may_end(self, workload: Workload, leaving: Sequence[Pod]) -> list[Pod]:
        """Return the pods that may end now: others may have failed since these were chosen,
        and the Job keeps as many as it needs.
        """
        running = {
            pod.metadata.uid
            for pod in self._caches.pods_of_job(workload.uid)
            if self._floors.runs(pod) and job_served_by(pod) is None and not self._ends_alone(pod)
        }
        anyway = [pod for pod in leaving if pod.metadata.uid not in running or not is_counted(pod)]
        least = self._floors.of_job(workload).least
        most = len(running) - sum(pod.metadata.uid in running for pod in anyway) - least
        return [*anyway, *[pod for pod in leaving if pod not in anyway][: max(most, 0)]]

    def _ends_alone(self, pod: Pod) -> bool:
        """True for a pod that was matched alone, and that is preempted itself."""
        alone = self._ledger.by_uid(pod.metadata.uid)
        return alone is not None and alone.evicting

    async def _end(self, pod: Pod) -> None:
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        try:
            await self._pods.end_of_job(pod)
        except (Conflict, NotFound):
            return  # it changed or is gone: it is looked at again
        except ApiError as error:
            log.warning("pod.not_given_back", pod=where, error=str(error))
            return
        log.info("pod.given_back", pod=where, node=pod.spec.node_name)

    def _tell(self, workload: Workload) -> None:
        """Say once what a Job gives back."""
        given = workload.requeue_state.given_back
        if given is None or given.jobid != workload.jobid or self._told.get(workload.id) == given.message:
            return
        self._told[workload.id] = given.message
        log.info(
            "workload.gives_back",
            workload=workload.id,
            uid=workload.uid,
            slots=len(given.ranks),
            stop_at=given.stop_at.isoformat(),
        )
        for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
            self._recorder.record(subject, "Shrunk", given.message, severity=Severity.WARNING)
