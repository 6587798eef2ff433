"""What the queue reads from one Job: how it is released, and how many pods it still runs."""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.jobs import Job
from fluxqueue.api.templatepins import has_required_nodes
from fluxqueue.queue.model.indexes import done_indexes
from fluxqueue.queue.model.minicluster_jobs import is_flux_cluster
from fluxqueue.queue.model.records import ReleaseMode

__all__ = ["is_elastic", "pods_wanted", "release_mode_of", "started_with_fewer", "template_can_hold_node"]

_LONGEST_REPEATED_LIST = 1_000
"""Indexes of a Job that runs one pod at a time:
a hostlist of that length still fits into an annotation easily."""


def release_mode_of(job: Job) -> ReleaseMode:
    """Return how a Job is released: the first row of the table in architecture section 5 that fits."""
    spec = job.spec
    if not spec.suspend or is_flux_cluster(job) or job.metadata.annotation(names.REPLACE_ANNOTATION) == "pod":
        return ReleaseMode.GATE
    if spec.indexed and spec.completions == (1 if spec.parallelism is None else spec.parallelism):
        return ReleaseMode.PIN
    if spec.pods_at_once == 1 and (not spec.indexed or (spec.completions or 1) <= _LONGEST_REPEATED_LIST):
        return ReleaseMode.PIN
    return ReleaseMode.GATE


def pods_wanted(job: Job) -> int:
    """Return how many pods of a Job still run at once.

    It is at least 1 as long as the Job wants any pods, until the Job reports that it is finished.
    """
    spec = job.spec
    at_once = spec.pods_at_once
    if spec.completions is None or at_once < 1:
        return at_once
    done = len(done_indexes(job)) if spec.indexed else job.status.succeeded
    return max(min(at_once, spec.completions - done), 1)


def is_elastic(job: Job) -> bool:
    """True for an elastic Indexed Job: each index has its own slot, and the highest indexes come and go as
    the Job is scaled.

    A Job that was started with fewer pods passes its slots on from index to index, and is none, even after it
    has grown.
    """
    spec = job.spec
    return (
        spec.indexed
        and spec.completions is not None
        and spec.completions == spec.pods_at_once
        and not started_with_fewer(job)
    )


def started_with_fewer(job: Job) -> bool:
    """True if the queue started a Job with fewer pods than it asks for,
    so that its parallelism is not what its user wrote.
    """
    return bool(job.metadata.annotation(names.STARTED_PODS_ANNOTATION))


def template_can_hold_node(job: Job, scheduler: SchedulerName) -> bool:
    """True if the template of a pin-released Job can hold the node of all its pods
    (`fluxqueue.api.templatepins`).

    All its pods need to be for one slot, whatever happens: they run one at a time, and more cannot be added
    while the Job runs. An elastic Job can grow. What else the webhook would do for a pod must not be
    necessary: brokers get Flux, and pods of our own scheduler its name.

    Parameters
    ----------
    job
        Suspended.
    scheduler
        Binds its pods.
    """
    spec, template = job.spec, job.spec.template
    if spec.pods_at_once != 1 or is_elastic(job):
        return False
    if any(
        template.metadata.annotation(key) is not None
        for key in (names.MINICLUSTER_ANNOTATION, names.INJECTION_ANNOTATION)
    ):
        return False
    if scheduler is SchedulerName.FLUXION:
        return template.spec.scheduler_name == names.SCHEDULER_NAME
    return not has_required_nodes(template.spec)
