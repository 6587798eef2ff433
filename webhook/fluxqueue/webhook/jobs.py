"""A Job at admission: suspended, marked as suspended by us, and its queue written into its pod template.

Suspending is the whole of holding a Job: its controller creates no pod until the release patch lets it go. The mark
``fluxqueue/suspended-by: webhook`` tells the queue that it may resume this one. A Job that its user created suspended gets no mark:
it stays his to resume.

A Job annotated ``fluxqueue/minicluster: "true"`` gets that annotation on its template too: its pods become brokers by it.

A Job's pods are admitted one by one, later, by name of the Job controller, and nothing of the Job can be looked up then: what they
must know has to stand in the template. So ``fluxqueue/managed`` and ``fluxqueue/queue`` are copied there. For the same reason a Job
that is somebody else's (Kueue's, or ``spec.managedBy`` another controller) gets one label on its template, ``fluxqueue/managed:
"false"``: without it we would gate the pods of a Job that we promised not to touch, and nobody would ever take the gate off.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.objects import ObjectMeta
from fluxqueue.webhook import patches
from fluxqueue.webhook.annotations import carried_keys, forged, unreadable
from fluxqueue.webhook.brokers import broker_problem, copied_annotations
from fluxqueue.webhook.decisions import Decision, Outcome, Refusal
from fluxqueue.webhook.exemptions import Exemption, job_exemption
from fluxqueue.webhook.reviews import Review, ReviewedJob

__all__ = ["decide_job"]

_COPIED = (names.MANAGED_LABEL, names.QUEUE_LABEL)
_TEMPLATE = "/spec/template/metadata"
_SEEN = {names.SEEN_LABEL: names.SEEN_VALUE}
_MARK = {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}


def decide_job(review: Review, job: ReviewedJob) -> Decision:
    """Decide about a Job that is to be created.

    Parameters
    ----------
    review
        For names in sentences; the requester has been judged already.
    job
        Its object.

    Returns
    -------
    Decision
        Held, exempt or refused. From the object's state alone, so that a second pass over the patched object changes nothing.
    """
    if keys := (carried_keys(job.metadata) or carried_keys(job.spec.template.metadata)):
        return Decision(Outcome.REFUSED, refusal=forged(review, keys))
    if (exemption := job_exemption(job)) is not None:
        return _leave(review, job, exemption)
    problems = unreadable(review, job.metadata)
    if (unfit := broker_problem(review, job)) is not None:
        problems = (*problems, unfit)
    if problems and job.metadata.controller is None:
        return Decision(Outcome.REFUSED, refusal=Refusal("Invalid", problems[0]))
    template = job.spec.template.metadata
    operations = patches.label("/metadata", job.metadata, _SEEN)
    if not job.spec.suspend:
        operations += patches.annotate("/metadata", job.metadata, _MARK)
        operations.append(patches.add("/spec/suspend", True))
    own = job.metadata.labels or {}
    standing = (template.labels if template else None) or {}
    copied = {key: own[key] for key in _COPIED if key in own and key not in standing}
    operations += patches.label(_TEMPLATE, template, copied)
    if flux := copied_annotations(job):
        # The label made the metadata where there was none.
        operations += patches.annotate(_TEMPLATE, template or ObjectMeta(), flux) if template or copied else _metadata(flux)
    return Decision(Outcome.HELD, tuple(operations), problems)


def _metadata(annotations: dict[str, str]) -> list[patches.Operation]:
    return [patches.add(_TEMPLATE, {"annotations": annotations})]


def _leave(review: Review, job: ReviewedJob, exemption: Exemption) -> Decision:
    template = job.spec.template.metadata
    if exemption is Exemption.NODE_CHOSEN:
        return Decision(Outcome.EXEMPT)
    warnings: tuple[str, ...] = ()
    if exemption is not Exemption.OPTED_OUT and job.metadata.label(names.QUEUE_LABEL):
        warnings = (
            f"{review.describe()}: label {names.QUEUE_LABEL} has no effect, because {exemption} hands this Job to another controller",
        )
    return Decision(Outcome.EXEMPT, tuple(patches.label(_TEMPLATE, template, {names.MANAGED_LABEL: "false"})), warnings)
