"""Takes released objects back into tables that do not know their release, before anything else is looked at.

Run once by each new leader: where Postgres was not restored from a backup, it compares and finds nothing. Ids that objects carry are
never given out again, whatever the tables say. Each adoption is the row, the grant and the note of its release, three transactions that
may end anywhere: the next leader finds a row that waits, or a release that is due and was done.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Job, Pod
from fluxqueue.queue.adoptions import Claim, claim_of_job, claim_of_pod, job_as_it_waited, jobid_of, pod_as_it_waited, shares_of
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.intake import describe_job, describe_pod, owning_job_uid
from fluxqueue.queue.jobspecs import BESIDE, SLOT, sizes_in
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import REPAIRS
from fluxqueue.queue.records import FluxionJobId, Grant, NewWorkload

__all__ = ["adopt_released"]

log = structlog.get_logger()


async def adopt_released(caches: Caches, ledger: Ledger) -> int:
    """Write down again what the tables lack; how many workloads that were.

    Parameters
    ----------
    caches
        Filled.
    ledger
        Loaded, and not yet told of anything else.
    """
    await ledger.store.skip_jobids(ledger.epoch, _highest(caches))
    found = list(_unknown(caches, ledger))
    if not found:
        return 0
    await ledger.take_in([new for new, _ in found])
    now = ledger.clock()
    grants = [
        Grant(
            workload=row.id,
            jobid=claim.jobid,
            shares=shares_of(new.jobspec, claim.hosts),
            hosts=claim.hosts,
            start=now,
            end=None,
        )
        for new, claim in found
        if (row := ledger.by_uid(new.uid)) is not None and row.state is State.PENDING
    ]
    refused = {grant.jobid for grant in await ledger.grant(grants)}
    adopted = [grant.jobid for grant in grants if grant.jobid not in refused]
    await ledger.released(adopted)
    REPAIRS.labels("adopted").inc(len(adopted))
    log.warning("released work was not in the tables and is adopted: was Postgres restored from a backup?", jobids=adopted[:20])
    return len(adopted)


def _highest(caches: Caches) -> FluxionJobId:
    """The highest id any object carries."""
    metas = [meta for job in caches.jobs.list() for meta in (job.metadata, job.spec.template.metadata)]
    metas += [pod.metadata for pod in caches.pods.list()]
    return max((jobid for meta in metas if (jobid := jobid_of(meta)) is not None), default=FluxionJobId(0))


def _unknown(caches: Caches, ledger: Ledger) -> Iterator[tuple[NewWorkload, Claim]]:
    """Objects whose release the tables do not know, as they were when they waited."""
    for job in caches.jobs.list():
        if _may_be_unknown(job, ledger):
            around, minicluster = caches.surroundings(job.metadata.namespace), caches.minicluster_of(job)
            new = describe_job(job_as_it_waited(job), around, has_gated_pods=True, minicluster=minicluster)
            claim = claim_of_job(job, caches.pods_of_job(job.metadata.uid), new.pods) if new is not None else None
            if new is not None and claim is not None and _alike(new):
                yield new, claim
    for pod in caches.pods.list():
        if _may_be_unknown(pod, ledger) and owning_job_uid(pod) is None and pod.metadata.label(names.POD_GROUP_LABEL) is None:
            claim = claim_of_pod(pod)
            new = describe_pod(pod_as_it_waited(pod), caches.surroundings(pod.metadata.namespace)) if claim is not None else None
            if new is not None and claim is not None and _alike(new):
                yield new, claim


def _alike(new: NewWorkload) -> bool:
    """Whether its pods are all of one size but the one beside them, so that each node's share can be told."""
    return bool(new.jobspec) and set(sizes_in(new.jobspec)) - {BESIDE} == {SLOT}


def _may_be_unknown(thing: Job | Pod, ledger: Ledger) -> bool:
    jobid = jobid_of(thing.metadata)
    if jobid is None or ledger.holding(jobid) is not None:
        return False
    row = ledger.by_uid(thing.metadata.uid)
    return row is None or row.state is State.PENDING
