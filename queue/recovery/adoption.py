"""Stores the allocations of released objects again, if the tables lack them, before a new leader does
anything else.

Every new leader runs this once. Unless Postgres was restored from a backup, it compares and finds nothing.
Only objects in managed namespaces that the queue admitted are accepted: the tables have a row for the object,
or it has the FluxJob that the queue created. The ids that such objects carry are never used again, whatever
the tables contain. An adoption is the row, the grant and the time of its release, in three transactions.
After a crash between them, the next leader finds a row that waits, or a release that is due and already done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.intake.native_scheduling import native_scheduling
from fluxqueue.queue.metrics import OBJECT_FAILURES, REPAIRS
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.jobs import pods_wanted, started_with_fewer
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT, SLOT, sizes_in
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import FluxionJobId, Grant, NewWorkload, Workload
from fluxqueue.queue.model.sources.registry import source_of_pod
from fluxqueue.queue.recovery.adoption_claims import (
    AdoptionCandidate,
    AllocationClaim,
    claim_of_job,
    claim_of_pod,
    consistent_candidates,
    job_before_release,
    pod_before_release,
)
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["adopt_released"]

log = structlog.get_logger()

_Item = TypeVar("_Item", Job, Pod)

_FORGED = 10**17
"""No queue has given so many ids; those that follow must be read as ids too, and fit into the sequence."""


async def adopt_released(caches: Caches, ledger: Ledger) -> int:
    """Store what the tables lack; return the number of workloads.

    Parameters
    ----------
    caches
        Filled.
    ledger
        Loaded, before any other change.
    """
    await ledger.skip_jobids(_highest(caches, ledger))
    # The description of a pod that is matched alone needs the row of its Job, so Jobs come first.
    pods = caches.pods.list()
    candidates = [*_read(_of_job, caches.jobs.list(), caches, ledger), *_read(_of_pod, pods, caches, ledger)]
    adopted = await _adopt(caches, ledger, candidates)
    return adopted + await _adopt(caches, ledger, [*_read(_of_pod_matched_alone, pods, caches, ledger)])


async def _adopt(caches: Caches, ledger: Ledger, candidates: Sequence[AdoptionCandidate]) -> int:
    if not candidates:
        return 0
    held = (share for _, allocation in ledger.live() for share in allocation.shares)
    accepted, refusals = consistent_candidates(candidates, lambda node: _capacity(caches, node), held)
    if refusals:
        log.warning("adoption.refused", reasons=refusals[:20], more=len(refusals[20:]))
    if not accepted:
        return 0
    await ledger.upsert([candidate.new for candidate in accepted])
    now = ledger.wall()
    grants = [
        Grant(
            workload=row.id,
            jobid=candidate.claim.jobid,
            shares=candidate.shares,
            hosts=candidate.claim.hosts,
            start=now,
            end=None,
        )
        for candidate in accepted
        if (row := ledger.by_uid(candidate.new.uid)) is not None and row.state is State.PENDING
    ]
    refused = {grant.jobid for grant in await ledger.grant(grants)}
    adopted = [grant.jobid for grant in grants if grant.jobid not in refused]
    await ledger.mark_released(adopted)
    REPAIRS.labels("adopted").inc(len(adopted))
    log.warning(
        "adoption.stored",
        jobids=adopted[:20],
        count=len(adopted),
        cause="Postgres was probably restored from a backup",
    )
    return len(adopted)


def _highest(caches: Caches, ledger: Ledger) -> FluxionJobId:
    """Return the highest id of any admitted object; a forged id could exhaust the sequence."""
    shown = [fluxjob.status.jobid for fluxjob in caches.fluxjobs.list()]
    metas = [
        meta
        for job in caches.jobs.list()
        if _admitted(job, caches, ledger)
        for meta in (job.metadata, job.spec.template.metadata)
    ]
    metas += [pod.metadata for pod in caches.pods.list() if _admitted(pod, caches, ledger)]
    found = (*shown, *map(jobid_of, metas))
    return FluxionJobId(max((jobid for jobid in found if jobid is not None and jobid < _FORGED), default=0))


def _read(
    read: Callable[[_Item, Caches, Ledger], AdoptionCandidate | None],
    items: Iterable[_Item],
    caches: Caches,
    ledger: Ledger,
) -> Iterator[AdoptionCandidate]:
    """Yield the objects whose release the tables do not know, as they were while they waited.

    An object that fails keeps no other from being adopted, and no leader from starting.
    """
    for item in items:
        try:
            candidate = read(item, caches, ledger)
        except Exception:
            OBJECT_FAILURES.labels("adoption").inc()
            log.exception("adoption.object_failed", object=f"{item.metadata.namespace}/{item.metadata.name}")
            continue
        if candidate is not None:
            yield candidate


def _of_job(job: Job, caches: Caches, ledger: Ledger) -> AdoptionCandidate | None:
    if not _may_be_unknown(job, ledger) or not _admitted(job, caches, ledger):
        return None
    cluster, minicluster = caches.cluster_context(job.metadata.namespace), caches.minicluster_of(job)
    native = replace(native_scheduling(job, caches), problem="")  # it runs whatever it says now
    new = describe_job(
        job_before_release(job), cluster, has_gated_pods=True, minicluster=minicluster, native=native
    )
    if new is None:
        return None
    wanted = pods_wanted(job) if started_with_fewer(job) else new.pods
    claim = claim_of_job(job, caches.pods_of_job(job.metadata.uid), wanted, ledger.wall())
    return _candidate(caches, new, claim)


def _of_pod(pod: Pod, caches: Caches, ledger: Ledger) -> AdoptionCandidate | None:
    if not _may_be_unknown(pod, ledger) or owning_job_uid(pod) is not None or _in_group(pod):
        return None
    return _candidate_of_pod(pod, caches, ledger)


def _of_pod_matched_alone(pod: Pod, caches: Caches, ledger: Ledger) -> AdoptionCandidate | None:
    """Read a pod of a known Job with an allocation of its own:
    the Job grew by it, or it replaces one that its node refused.
    """
    row = ledger.by_uid(owning_job_uid(pod) or "")
    if row is None or row.jobid in (None, jobid_of(pod.metadata)) or not _may_be_unknown(pod, ledger):
        return None
    return _candidate_of_pod(pod, caches, ledger, row)


def _candidate_of_pod(
    pod: Pod, caches: Caches, ledger: Ledger, job: Workload | None = None
) -> AdoptionCandidate | None:
    claim = claim_of_pod(pod) if _admitted(pod, caches, ledger) else None
    if claim is None:
        return None
    new = describe_pod(pod_before_release(pod), caches.cluster_context(pod.metadata.namespace), job=job)
    return _candidate(caches, new, claim) if new is not None else None


def _candidate(caches: Caches, new: NewWorkload, claim: AllocationClaim | None) -> AdoptionCandidate | None:
    if claim is None or not _has_one_size(new):
        return None
    fluxjob = caches.fluxjob_of(new.uid)
    confirmed = fluxjob is not None and fluxjob.status.jobid == claim.jobid
    return AdoptionCandidate(new, claim, confirmed)


def _admitted(item: Job | Pod, caches: Caches, ledger: Ledger) -> bool:
    """True if the queue admitted an object: only the queue creates FluxJobs and writes the tables."""
    meta = item.metadata
    return caches.manages(meta.namespace) and (
        ledger.by_uid(meta.uid) is not None or caches.fluxjob_of(meta.uid) is not None
    )


def _capacity(caches: Caches, node: str) -> Mapping[str, int] | None:
    existing = caches.nodes.get("", node)
    if existing is None:
        return None
    devices = caches.devices
    return {
        **{pool.type: pool.total for pool in graph_node(existing).spec.pools},
        **devices.capacity(node, devices.extended.types),
    }


def _in_group(pod: Pod) -> bool:
    """True for a pod of a pod group, or of a gang of another project:
    the size of its slot among the others is not known.
    """
    return pod.metadata.label(names.POD_GROUP_LABEL) is not None or source_of_pod(pod) is not None


def _has_one_size(new: NewWorkload) -> bool:
    """True if all pods but a services pod have one size, so that the share of each node is known."""
    return bool(new.jobspec) and set(sizes_in(new.jobspec)) - {SERVICES_SLOT} == {SLOT}


def _may_be_unknown(item: Job | Pod, ledger: Ledger) -> bool:
    jobid = jobid_of(item.metadata)
    if jobid is None or ledger.allocation_of_job(jobid) is not None:
        return False
    row = ledger.by_uid(item.metadata.uid)
    return row is None or row.state is State.PENDING
