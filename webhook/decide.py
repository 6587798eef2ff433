"""The admission decision, as one pure function of the review and the time.

There is one rule. A Job is suspended. A pod without an allocation is gated. A pod with an allocation, given
by its Job's template, is pinned to its node. In addition the scheduler that binds the pod is set
(`fluxqueue.webhook.choices`). The decision makes no database or API call, and time and known queues are
arguments: the object has no uid yet, the review does not contain the labels of its namespace, and an object
that is refused by a later admission plugin must leave no trace. What is only known later (the queue of a
namespace, whether a queue exists, whether a request can ever be satisfied) is reported by the queue on the
FluxJob.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from fluxqueue.api import names
from fluxqueue.webhook.annotations import unread
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionRefusal, AdmissionSettings, Decision
from fluxqueue.webhook.exemptions import request_exemption
from fluxqueue.webhook.jobs import decide_job
from fluxqueue.webhook.pods import decide_pod
from fluxqueue.webhook.reviews import Review, ReviewedJob, ReviewedMiniCluster
from fluxqueue.webhook.start_annotations import deadline_warnings
from fluxqueue.webhook.submitters import decide_minicluster

__all__ = ["AdmissionOutcome", "AdmissionRefusal", "AdmissionSettings", "Decision", "decide"]


def decide(review: Review, settings: AdmissionSettings, now: dt.datetime) -> Decision:
    """Decide one review.

    Parameters
    ----------
    review
        The review, from `fluxqueue.webhook.reviews.read_review`.
    settings
        Identities and namespaces.
    now
        The time, with a zone. An allocation pins pods only for a limited time.

    Returns
    -------
    Decision
        The decision; never an exception. Updates, deletions, subresources and other kinds pass.
    """
    if review.object is None:
        return Decision(AdmissionOutcome.PASSED)
    if request_exemption(review, settings) is not None:
        return Decision(AdmissionOutcome.EXEMPT)
    if isinstance(review.object, ReviewedMiniCluster):
        return _warned(review, decide_minicluster(review, review.object, settings), unread(review))
    if isinstance(review.object, ReviewedJob):
        decision = decide_job(review, review.object, settings)
    else:
        decision = decide_pod(review, review.object, settings, now)
    if decision.outcome is not AdmissionOutcome.HELD or review.object.metadata.controller is not None:
        return decision
    meta = review.object.metadata
    no_queue = settings.queues.warning(f"label {names.QUEUE_LABEL}", meta.label(names.QUEUE_LABEL))
    return _warned(review, decision, (*unread(review), *deadline_warnings(meta, now), no_queue))


def _warned(review: Review, decision: Decision, warnings: tuple[str | None, ...]) -> Decision:
    """Add warnings about an object that a person creates; None is none."""
    named = tuple(f"{review.describe()}: {warning}" for warning in warnings if warning is not None)
    return replace(decision, warnings=(*decision.warnings, *named)) if named else decision
