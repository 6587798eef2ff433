"""What an object asks of the queue: a pure reading of a Job, a Pod or a group, made each time the object
changes.

A description says which queue and priority a workload has, how long it runs, how many pods of what size run
on which nodes, and how they are released. Six resolvers read these parts:
`fluxqueue.queue.intake.queue_resolver`, ``duration_resolver``, ``priority_resolver``,
``reservation_resolver``, ``request_resolver`` and ``start_resolver``. Anything that keeps the object from
being matched becomes a reason, with a message that names the object, the field and the remedy
(`fluxqueue.queue.intake.problems`).

What a person sets in the FluxJob (`fluxqueue.queue.status.fluxjob_edits`) counts before what the object says.

The identity of a workload is the uid of its object. An object opts out by a label of its namespace or of its
pod template. No label that a user can set lets work start earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.moldable import JobSize
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.submitters import readable_submitter
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.object_problems import is_ours, job_problem, object_problems, opted_out
from fluxqueue.queue.intake.problems import Problem, most_urgent
from fluxqueue.queue.intake.resolvers import resolve
from fluxqueue.queue.intake.submission import (
    NEW_WORKLOAD,
    NO_NATIVE_SCHEDULING,
    NativeScheduling,
    PodTemplate,
    Submission,
    WorkloadContext,
)
from fluxqueue.queue.model.alike_specs import AlikeSpecs
from fluxqueue.queue.model.groups import JOB_SET, POD_GROUP, GatheredGroup, GroupKey, uid_of_group
from fluxqueue.queue.model.indexes import done_indexes, write_indexes
from fluxqueue.queue.model.jobs import pods_wanted, release_mode_of
from fluxqueue.queue.model.jobspecs import reservation_in, takes_whole_nodes
from fluxqueue.queue.model.minicluster_jobs import flux_pods, is_flux_cluster
from fluxqueue.queue.model.moldable import at_full_size
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.sources.registry import source_named

__all__ = ["describe_group", "describe_job", "describe_pod"]

_MOST_PODS = 2**31 - 1
"""Of a workload, as its column stores them."""


def describe_job(
    job: Job,
    cluster: ClusterContext,
    workload: WorkloadContext = NEW_WORKLOAD,
    *,
    has_gated_pods: bool = False,
    minicluster: MiniCluster | None = None,
    blocked_by: str = "",
    native: NativeScheduling = NO_NATIVE_SCHEDULING,
) -> NewWorkload | None:
    """Describe a Job.

    Parameters
    ----------
    job
        As it is now.
    cluster
        Queues, priorities and defaults.
    workload
        Its row and overrides, if it has any.
    has_gated_pods
        True if pods of this Job have our gate. They are released, whatever its labels say by now. A new Job
        that runs is ours only then.
    minicluster
        The MiniCluster that the Job belongs to, if any. The slot of its services pod is matched with those of
        the brokers.
    blocked_by
        Why an object that its pods need cannot be made; empty if nothing is known to block them.
    native
        What it says of its own scheduling.

    Returns
    -------
    NewWorkload or None
        None if the Job is not the queue's: it is finished, being deleted, opted out, managed by another
        controller, or was running before the queue came.
    """
    if not is_ours(job, has_gated_pods=has_gated_pods, known=workload.row is not None):
        return None
    submission = _submission_of_job(at_full_size(job), workload, minicluster, blocked_by, native)
    return _describe(submission, cluster, workload)


def _submission_of_job(
    job: Job,
    workload: WorkloadContext,
    minicluster: MiniCluster | None,
    blocked_by: str,
    native: NativeScheduling,
) -> Submission:
    meta, spec = job.metadata, job.spec
    wanted, mode = pods_wanted(job), release_mode_of(job)
    flux = flux_pods(job, minicluster)
    labels = _labels_by_index(spec.template.metadata.labels or {}, wanted)
    partly_done, is_flux = wanted < spec.pods_at_once, is_flux_cluster(job) or minicluster is not None
    return Submission(
        meta=meta,
        api_version="batch/v1",
        kind="Job",
        templates=(PodTemplate(flux.spec, max(wanted, 1), labels, complete=False),),
        slots=max(wanted, 0) + (1 if flux.services is not None else 0),
        services=flux.services,
        deadline_s=spec.active_deadline_seconds,
        ends=True,
        release_mode=mode,
        done_indexes=write_indexes(done_indexes(job)) if mode is ReleaseMode.PIN and partly_done else "",
        extra_requests=workload.extra_requests,
        annotations=(meta.annotations, spec.template.metadata.annotations),
        size=JobSize(spec.indexed, spec.completions, spec.parallelism, is_flux, scheduling=spec.scheduling),
        partly_done=partly_done,
        domain=native.domain,
        group_claims=native.claims,
        problem=job_problem(job, flux.problem or blocked_by or native.problem),
    )


def describe_pod(
    pod: Pod,
    cluster: ClusterContext,
    workload: WorkloadContext = NEW_WORKLOAD,
    *,
    complete_group: str = "",
    job: Workload | None = None,
    member_of: Workload | None = None,
    beside: tuple[str, ...] = (),
) -> NewWorkload | None:
    """Describe a Pod that is matched alone: without an owner, with an owner that is no Job, or a pod for
    which its Job has no slot.

    Parameters
    ----------
    pod
        As it is now.
    cluster
        Queues, priorities and defaults.
    workload
        Its row and overrides, if it has any.
    complete_group
        The group that it names and that is complete without it, in words. Such a pod is not matched.
    job
        The workload of its Job, if the Job has no slot for it. The pod gets the Job's queue, priority and
        duration.
    member_of
        The workload of its group, or its own row after the group ended, if it is matched without the group.
        What the group asks of the topology does not bind a single pod, but for whole nodes.
    beside
        Properties of the nodes next to the other pods of that Job or group, if all its pods must lie below
        one vertex of the topology.

    Returns
    -------
    NewWorkload or None
        None if the pod is not the queue's: it has no gate of ours, is being deleted, or is part of a Job. One
        that our own scheduler binds has no gate, and may opt out.
    """
    meta, spec = pod.metadata, pod.spec
    if not meta.uid or not pod.held or meta.deletion_timestamp or pod.terminal:
        return None
    if opted_out(meta, meta) and not spec.gated_by(names.GATE):  # nobody but the queue removes its gate
        return None
    if job is not None:
        return _describe_pod_of_job(pod, job, cluster, workload, beside)
    if owning_job_uid(pod):
        return None
    submission = _submission_of_pod(pod, complete_group, member_of, beside)
    return _describe(submission, cluster, workload)


def _submission_of_pod(
    pod: Pod, complete_group: str, member_of: Workload | None, beside: tuple[str, ...]
) -> Submission:
    meta, spec = pod.metadata, pod.spec
    whole = None if member_of is None else TopologyRequest(exclusive=takes_whole_nodes(member_of.jobspec))
    return Submission(
        meta=meta,
        api_version="v1",
        kind="Pod",
        templates=(PodTemplate(spec, 1, (meta.labels or {},)),),
        deadline_s=spec.active_deadline_seconds,
        ends=spec.ends,
        release_mode=ReleaseMode.POD,
        annotations=(meta.annotations,),
        topology=whole,
        beside=beside,
        problem=_excess(meta, complete_group) if complete_group else None,
    )


def _excess(meta: ObjectMeta, complete_group: str) -> Problem:
    remedy = (
        f"delete it, or raise the {names.POD_GROUP_SIZE_ANNOTATION} of all its pods before they are started"
    )
    return Problem(
        Reason.INVALID_REQUEST,
        f"Pod {meta.namespace}/{meta.name} names {complete_group}, which is complete without it: {remedy}",
    )


def _describe_pod_of_job(
    pod: Pod, job: Workload, cluster: ClusterContext, workload: WorkloadContext, beside: tuple[str, ...]
) -> NewWorkload:
    meta = pod.metadata
    labels = dict(meta.labels or {})
    duration = {names.DURATION_ANNOTATION: str(job.duration_s)} if job.duration_s is not None else {}
    own = {key: text for key, text in (meta.annotations or {}).items() if key not in names.START_ANNOTATIONS}
    submission = Submission(
        meta=msgspec.structs.replace(
            meta,
            labels={**labels, names.QUEUE_LABEL: job.queue},
            annotations={**own, **duration, **_reservation_of(job)},
        ),
        api_version="v1",
        kind="Pod",
        templates=(PodTemplate(pod.spec, 1, (labels,)),),
        deadline_s=None,
        ends=job.duration_s is not None,
        release_mode=ReleaseMode.POD,
        topology=TopologyRequest(exclusive=takes_whole_nodes(job.jobspec)),
        beside=beside,
    )
    described = _describe(submission, cluster, workload)
    return replace(
        described,
        priority=job.priority,
        duration_assumed=job.duration_assumed,
        account=job.account,
        submitted_by=job.submitted_by,
        submitted_at=job.submitted_at,
    )


def _reservation_of(job: Workload) -> dict[str, str]:
    """Return the annotation that the pods by which a Job grows have as if it were their own."""
    name = reservation_in(job.jobspec)
    return {names.RESERVATION_ANNOTATION: name} if name else {}


def describe_group(
    key: GroupKey, group: GatheredGroup, cluster: ClusterContext, workload: WorkloadContext = NEW_WORKLOAD
) -> NewWorkload:
    """Describe a group that has no nodes yet.

    The metadata of its oldest pod counts for all of them. Each pod requests a slot of its own size.
    """
    members = group.members
    first, shared = members[0], group.metadata or ObjectMeta()
    meta = msgspec.structs.replace(
        first.metadata,
        uid=uid_of_group(key, first),
        name=key.name,
        generation=group.generation,
        labels={**(shared.labels or {}), **(first.metadata.labels or {})},
        annotations={**_unnamed(shared.annotations), **(first.metadata.annotations or {})},
    )
    if group.alike:
        templates: tuple[PodTemplate, ...] = (
            PodTemplate(first.spec, group.size, tuple(pod.metadata.labels or {} for pod in members)),
        )
    else:
        templates = (
            *_templates_of(members),
            *(PodTemplate(each.spec, each.pods, (each.labels,), complete=False) for each in group.later_pods),
        )
    deadlines = [pod.spec.active_deadline_seconds for pod in members]
    return _describe(
        Submission(
            meta=meta,
            api_version=_api_version(key),
            kind=key.kind,
            templates=templates,
            slots=group.size,
            deadline_s=None
            if None in deadlines
            else max(deadline for deadline in deadlines if deadline is not None),
            ends=all(pod.spec.ends for pod in members),
            release_mode=ReleaseMode.GROUP,
            annotations=(meta.annotations,),
            domain=group.domain,
            beside=group.beside,
            problem=Problem(group.reason, group.message) if group.reason else None,
        ),
        cluster,
        workload,
    )


def _templates_of(pods: Sequence[Pod]) -> list[PodTemplate]:
    """Return the specs of pods with their numbers, so that what thousands of equal pods request is read
    once.
    """
    alike: list[tuple[PodSpec, list[Mapping[str, str]]]] = []

    def begin(spec: PodSpec) -> list[Mapping[str, str]]:
        alike.append((spec, []))
        return alike[-1][1]

    labels_of = AlikeSpecs(begin)
    for pod in pods:
        labels_of(pod.spec).append(pod.metadata.labels or {})
    return [PodTemplate(spec, len(labels), tuple(labels)) for spec, labels in alike]


def _api_version(key: GroupKey) -> str:
    if key.source:
        return source_named(key.source).api_version
    return {POD_GROUP: "v1", JOB_SET: "jobset.x-k8s.io/v1alpha2"}.get(key.kind, "apps/v1")


def _describe(submission: Submission, cluster: ClusterContext, workload: WorkloadContext) -> NewWorkload:
    """Resolve the parts of a submission, and put them together."""
    meta, overrides = submission.meta, workload.overrides
    parts = resolve(submission, cluster, workload)
    problem = most_urgent([*object_problems(submission, workload), *parts.problems])
    return NewWorkload(
        uid=meta.uid,
        api_version=submission.api_version,
        kind=submission.kind,
        namespace=meta.namespace,
        name=meta.name,
        queue=parts.queue.name,
        priority=parts.priority,
        jobspec=parts.request.jobspec,
        shape=parts.request.shape,
        pods=min(submission.slots, _MOST_PODS),
        duration_s=parts.duration.seconds,
        duration_assumed=parts.duration.assumed,
        release_mode=submission.release_mode,
        generation=meta.generation,
        reason=problem.reason,
        message=problem.message,
        overrides=overrides,
        account=cluster.account,
        submitted_by=_submitter(meta, workload.row),
        done_indexes=submission.done_indexes,
        start_conditions=parts.start,
    )


def _unnamed(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Return the annotations of an owner without a submitter:
    only that of what passes admission is checked.
    """
    return {key: text for key, text in (annotations or {}).items() if key != names.SUBMITTED_BY_ANNOTATION}


def _submitter(meta: ObjectMeta, row: Workload | None) -> str:
    """Return who created an object.
    A name that is taken off the object stays with its workload; on a pod of a Job nobody checked it.
    """
    if meta.controller is not None and meta.controller.kind == "Job":
        return row.submitted_by if row is not None else ""
    return readable_submitter(meta.annotation(names.SUBMITTED_BY_ANNOTATION)) or (
        row.submitted_by if row is not None else ""
    )


def _labels_by_index(labels: Mapping[str, str], count: int) -> tuple[Mapping[str, str], ...]:
    """Return labels of a Job's pods: they carry the completion index,
    so that no two pods have the same labels.
    """
    return (
        tuple({**labels, names.JOB_INDEX_LABEL: str(index)} for index in range(2)) if count > 1 else (labels,)
    )
