"""Changes how many pods of a running Job run at once, where the Job was started with fewer than it asked for.

The queue decides at the end of a cycle (`fluxqueue.queue.scheduling.growth`); this module reads the Jobs and
sends the patches. A patch has the resourceVersion that was read. Where it is refused, the next cycle decides
again, by the Job as it is then. What was sent before a crash is seen as the parallelism of the Job, so
nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import QueueState
from fluxqueue.api.jobs import Job
from fluxqueue.kube.errors import Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.indexes import done_indexes
from fluxqueue.queue.model.job_sizes import JobPods
from fluxqueue.queue.model.moldable import GROWTH_PRIORITY, min_pods_in
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.release.patches import resize_job
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["JobResizer"]

log = structlog.get_logger()

_WORKERS = 2


class JobResizer:
    """Reads and changes the parallelism of Jobs."""

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("job-sizes")
        self._wanted: dict[WorkloadId, int] = {}
        self._decide_again: Callable[[], None] = _ignore

    def subscribe(self, decide_again: Callable[[], None]) -> None:
        """Have a further cycle requested by this function where a Job changed before its patch:
        nothing else may request one.
        """
        self._decide_again = decide_again

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._patch)

    def resync(self) -> None:
        """Do nothing: each cycle looks at the Jobs as they are."""

    def pods_of(self, workload: Workload) -> JobPods | None:
        """Return the pods of a Job; None if it cannot be resized now."""
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is None or workload.id in self._wanted or not _is_running(job) or job.spec.completions is None:
            return None
        pods = [pod for pod in self._caches.pods_of_job(workload.uid) if not pod.terminal]
        if any(pod.metadata.deletion_timestamp for pod in pods):
            return None  # what ends now is counted when it is gone
        pending = [
            (pod, row)
            for pod in pods
            if (row := self._ledger.by_uid(pod.metadata.uid)) is not None and row.state is State.PENDING
        ]
        waiting = [pod.metadata.creation_timestamp for pod, row in pending if row.priority == GROWTH_PRIORITY]
        if len(waiting) < len(pending):
            return None  # a pod that has lost its node comes first
        completions = job.spec.completions
        parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
        return JobPods(
            parallelism=parallelism,
            full=completions if self._is_open(workload.queue) else parallelism,
            least=min_pods_in(workload.jobspec),
            left=completions - len(done_indexes(job)),
            active=len(pods),
            waiting=len(waiting),
            waiting_since=min((datetime.fromisoformat(each) for each in waiting if each), default=None),
        )

    def _is_open(self, name: str) -> bool:
        """True if a queue starts work. The default queue exists without a FluxQueue."""
        queue = self._caches.fluxqueues.get("", name)
        return name == names.DEFAULT_QUEUE if queue is None else queue.spec.state is QueueState.OPEN

    def resize(self, workload: WorkloadId, parallelism: int) -> None:
        """Have the parallelism of a Job changed soon."""
        self._wanted[workload] = parallelism
        self._keys.add(workload)

    async def _patch(self, workload_id: WorkloadId) -> float | None:
        parallelism, workload = self._wanted.get(workload_id), self._ledger.get(workload_id)
        try:
            job = self._caches.jobs.get_by_uid(workload.uid) if workload is not None else None
            if (
                parallelism is not None
                and job is not None
                and _is_running(job)
                and job.spec.parallelism != parallelism
            ):
                await self._resize(job, parallelism)
        finally:
            self._wanted.pop(workload_id, None)
        return None

    async def _resize(self, job: Job, parallelism: int) -> None:
        meta, before = job.metadata, job.spec.parallelism or 1
        try:
            await self._api.patch(
                JOBS,
                meta.name,
                resize_job(job, parallelism),
                namespace=meta.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        except (Conflict, NotFound):
            self._decide_again()
            return
        except (Forbidden, Invalid) as error:
            log.warning(
                "job.resize_refused",
                job=f"{meta.namespace}/{meta.name}",
                parallelism=parallelism,
                error=str(error),
            )
            return
        reach(CrashPoint.RESIZED)
        log.info("job.resized", job=f"{meta.namespace}/{meta.name}", before=before, parallelism=parallelism)
        title = f"Job {meta.namespace}/{meta.name}"
        if parallelism > before:
            self._recorder.record(
                Subject.of(JOBS, job),
                "Grown",
                f"{title} grows from {before} to {parallelism} pods: nodes are free",
            )
        else:
            message = f"{title} goes back from {before} to {parallelism} pods: other work took the nodes"
            self._recorder.record(Subject.of(JOBS, job), "Shrunk", message, severity=Severity.WARNING)


def _ignore() -> None:
    return None


def _is_running(job: Job) -> bool:
    return (
        not job.spec.suspend
        and not job.finished
        and job.metadata.deletion_timestamp is None
        and job.spec.parallelism != 0
    )
