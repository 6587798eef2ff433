"""Admission of Jobs: a Job is suspended and marked as suspended by us, and its queue is copied into its pod
template.

Suspending is all that is needed to hold a Job: its controller creates no pod until the queue unsuspends it.
The mark ``fluxqueue/suspended-by: webhook`` tells the queue that it may unsuspend this Job. A Job that its
user created suspended gets no mark: only the user unsuspends it.

A Job with the annotation ``fluxqueue/minicluster: "true"`` gets it on its template too, which makes its pods
brokers.

The Job controller creates the pods later, one by one, and then nothing of the Job can be looked up. What the
pods need has to be in the template. So ``fluxqueue/managed``, ``fluxqueue/queue`` and ``fluxqueue/scheduler``
are copied there. For the same reason a Job of another controller (Kueue, or ``spec.managedBy``) gets one
label on its template, ``fluxqueue/managed: "false"``. Without it the webhook would gate the pods of a Job
that fluxqueue does not manage, and nothing would ever remove the gate.

A Job that is queued loses its managed fields, unless server-side apply has some: the queue reads none of
them, and they are two fifths of it. The API server tracks none from then on, so later writes cost it less.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.bounds import too_many_pods
from fluxqueue.api.job_scheduling import scheduling_problem
from fluxqueue.api.jobs import JobSpec
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.moldable import JobSize, min_pods_problem
from fluxqueue.webhook import patches
from fluxqueue.webhook.annotations import carried_keys, crowded, forged, not_installed, unreadable
from fluxqueue.webhook.brokers import broker_problem, copied_annotations, requests_broker
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionRefusal, AdmissionSettings, Decision
from fluxqueue.webhook.exemptions import Exemption, job_exemption
from fluxqueue.webhook.reviews import Review, ReviewedJob
from fluxqueue.webhook.submitters import submitter_mark, unwanted_mark

__all__ = ["decide_job"]

_COPIED = (names.MANAGED_LABEL, names.QUEUE_LABEL, names.SCHEDULER_LABEL)
_TEMPLATE = "/spec/template/metadata"
_SEEN = {names.SEEN_LABEL: names.SEEN_VALUE}
_MARK = {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}


def decide_job(review: Review, job: ReviewedJob, settings: AdmissionSettings) -> Decision:
    """Decide on the creation of a Job.

    Parameters
    ----------
    review
        The review, for names in sentences. The requester has been checked already.
    job
        The Job under review.
    settings
        Whether a scheduler of ours is installed, and whether it is recorded who submits what.

    Returns
    -------
    Decision
        Held, exempt or refused. It depends only on the object's state, so that a second pass over the patched
        object changes nothing.
    """
    if keys := (carried_keys(job.metadata) or carried_keys(job.spec.template.metadata)):
        return Decision(AdmissionOutcome.REFUSED, refusal=forged(review, keys))
    if (exemption := job_exemption(job)) is not None:
        return _exempt(review, job, exemption)
    template = job.spec.template.metadata
    problems = unreadable(review, settings, job.metadata, template)
    if (unfit := broker_problem(review, job)) is not None:
        problems = (*problems, unfit)
    problems += (*_size_problems(review, job), *crowded(review, template))
    if problems and job.metadata.controller is None:
        return Decision(AdmissionOutcome.REFUSED, refusal=AdmissionRefusal("Invalid", problems[0]))
    if settings.choices is None:
        problems += not_installed(review, job.spec.template.spec.scheduler_name, job.metadata, template)
    operations = patches.label("/metadata", job.metadata, _SEEN)
    marks = submitter_mark(review, job.metadata, settings)
    if not job.spec.suspend:
        marks |= _MARK
        operations.append(patches.add("/spec/suspend", True))
    operations += patches.annotate("/metadata", job.metadata, marks)
    if job.metadata.managed_fields and not job.metadata.applied:
        operations.append(patches.remove("/metadata/managedFields"))
    operations += unwanted_mark(review, job.metadata, settings)
    own = job.metadata.labels or {}
    present = (template.labels if template else None) or {}
    copied = {key: own[key] for key in _COPIED if key in own and key not in present}
    operations += patches.label(_TEMPLATE, template, copied)
    if flux := copied_annotations(job):
        # The operation for the labels has created the metadata if there was none.
        operations += (
            patches.annotate(_TEMPLATE, template or ObjectMeta(), flux)
            if template or copied
            else _metadata(flux)
        )
    return Decision(AdmissionOutcome.HELD, tuple(operations), problems)


def _size_problems(review: Review, job: ReviewedJob) -> tuple[str, ...]:
    """Return why a Job has too many pods, cannot have as many at once as its own gang needs,
    or may not start with fewer.
    """
    spec = job.spec
    at_once = JobSpec(parallelism=spec.parallelism, completions=spec.completions).pods_at_once
    group = spec.template.spec.scheduling_group
    named = group.pod_group_name if group is not None else None
    found = (
        too_many_pods(at_once),
        scheduling_problem(spec.scheduling, named, spec.parallelism, at_once),
        _min_pods_problem(job),
    )
    return tuple(f"{review.describe()}: {problem}" for problem in found if problem)


def _min_pods_problem(job: ReviewedJob) -> str:
    """Return why a Job may not start with fewer pods as it asks for; empty if it does not ask, or may."""
    spec, template = job.spec, job.spec.template.metadata or ObjectMeta()
    if (text := job.metadata.annotation(names.MIN_PODS_ANNOTATION)) is None:
        return ""
    keys = (names.TOPOLOGY_SLICE_ANNOTATION, names.KUEUE_SLICE_SIZE_ANNOTATION)
    size = JobSize(
        spec.completion_mode == "Indexed",
        spec.completions,
        spec.parallelism,
        cluster=requests_broker(job.metadata) or requests_broker(template),
        slices=any(part.annotation(key) for part in (job.metadata, template) for key in keys),
        scheduling=spec.scheduling,
    )
    return min_pods_problem(text, size)


def _metadata(annotations: dict[str, str]) -> list[patches.Operation]:
    return [patches.add(_TEMPLATE, {"annotations": annotations})]


def _exempt(review: Review, job: ReviewedJob, exemption: Exemption) -> Decision:
    template, taken_back = job.spec.template.metadata, tuple(_taken_back(job, exemption))
    if exemption in (Exemption.NODE_CHOSEN, Exemption.EMPTY):
        return Decision(AdmissionOutcome.EXEMPT, taken_back)
    warnings: tuple[str, ...] = ()
    if exemption is not Exemption.OPTED_OUT and job.metadata.label(names.QUEUE_LABEL):
        warnings = (
            (
                f"{review.describe()}: label {names.QUEUE_LABEL} has no effect, because {exemption} leaves "
                "this Job to another controller"
            ),
        )
    operations = (*taken_back, *patches.label(_TEMPLATE, template, {names.MANAGED_LABEL: "false"}))
    return Decision(AdmissionOutcome.EXEMPT, operations, warnings)


def _taken_back(job: ReviewedJob, exemption: Exemption) -> list[patches.Operation]:
    """Return what takes our suspension back from a Job that another webhook took out of the queue after we
    had suspended it.

    A Job that another controller manages stays suspended, because that controller resumes it. Nobody would
    resume the others.
    """
    meta = job.metadata
    if (
        meta.label(names.SEEN_LABEL) is None
        or meta.annotation(names.SUSPENDED_BY_ANNOTATION) != names.SUSPENDED_BY_WEBHOOK
    ):
        return []
    operations = patches.drop("/metadata", meta, (names.SUSPENDED_BY_ANNOTATION,))
    if job.spec.suspend and exemption in (Exemption.OPTED_OUT, Exemption.NODE_CHOSEN):
        operations.append(patches.replace("/spec/suspend", False))
    return operations
