"""Objects whose work ended without its FluxJob showing it, because a leader ended before it wrote that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fluxqueue.api import names
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.states import ENDED
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["outdated_fluxjobs", "without_fluxjob"]


def outdated_fluxjobs(caches: Caches, ledger: Ledger) -> Iterator[str]:
    """Yield the uids of the objects of FluxJobs that show no end, although their work is not in the queue."""
    for fluxjob in caches.fluxjobs.list():
        uid = fluxjob.spec.object_ref.uid
        if ledger.by_uid(uid) is None and fluxjob.status.state not in ENDED:
            yield uid


def without_fluxjob(caches: Caches, ledger: Ledger) -> Iterator[str]:
    """Yield the uids of finished objects that the webhook has seen and that neither the queue nor a FluxJob
    knows.
    """
    jobs = (job.metadata for job in caches.jobs.list() if job.finished)
    pods = (pod.metadata for pod in caches.pods.list() if pod.terminal and owning_job_uid(pod) is None)
    for meta in itertools.chain(jobs, pods):
        if (
            meta.label(names.SEEN_LABEL)
            and ledger.by_uid(meta.uid) is None
            and caches.fluxjob_of(meta.uid) is None
        ):
            yield meta.uid
