"""The admission decision, as one pure function of the review.

One rule: a Job is suspended; a pod without an allocation is gated; a pod that carries one, given by its Job's template, is pinned to
its node. No database, no API call, no clock and no memory: a UID does not exist yet at this point, a namespace's labels are not in
the review, and an object that is refused further on must have left nothing behind. What can only be known later (which queue a
namespace stands for, whether a queue exists, whether a request can ever fit) is the queue's to say, on the FluxJob.
"""

from __future__ import annotations

from fluxqueue.webhook.decisions import Decision, Outcome, Refusal, Settings
from fluxqueue.webhook.exemptions import request_exemption
from fluxqueue.webhook.jobs import decide_job
from fluxqueue.webhook.pods import decide_pod
from fluxqueue.webhook.reviews import Review, ReviewedJob

__all__ = ["Decision", "Outcome", "Refusal", "Settings", "decide"]


def decide(review: Review, settings: Settings) -> Decision:
    """Decide one review.

    Parameters
    ----------
    review
        As `fluxqueue.webhook.reviews.read_review` returns it.
    settings
        Identities and namespaces.

    Returns
    -------
    Decision
        Never raises: whatever could be read gets an answer. Updates, deletions, subresources and other kinds pass.
    """
    if review.object is None:
        return Decision(Outcome.PASSED)
    if request_exemption(review, settings) is not None:
        return Decision(Outcome.EXEMPT)
    if isinstance(review.object, ReviewedJob):
        return decide_job(review, review.object)
    return decide_pod(review, review.object, settings)
