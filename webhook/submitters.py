"""Who submits an object: written on it at admission, because nobody else knows it later.

The API server names the requester in the review and keeps him nowhere in the object. So the webhook writes
the user name into an annotation of each Job and Pod that it holds, over whatever a manifest says. A policy of
the chart refuses another name where no webhook answers, and a change of the name later (docs/decisions/0028).

The pods of a Job carry no name: their Job has it. The Job of a MiniCluster is created by the queue with the
name on the MiniCluster, which stays.
"""

from __future__ import annotations

from typing import Final

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, OwnerReference
from fluxqueue.api.submitters import readable_submitter
from fluxqueue.webhook import patches
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionSettings, Decision
from fluxqueue.webhook.reviews import Review, ReviewedMiniCluster

__all__ = ["decide_minicluster", "submitter_mark", "unwanted_mark"]

_KEY: Final = names.SUBMITTED_BY_ANNOTATION


def submitter_mark(review: Review, meta: ObjectMeta, settings: AdmissionSettings) -> dict[str, str]:
    """Return the annotation that names the requester; empty if none is to be written."""
    if not settings.record_submitters or _told_by_its_owner(meta):
        return {}
    name = readable_submitter(review.requester)
    return {_KEY: name} if name else {}


def unwanted_mark(review: Review, meta: ObjectMeta, settings: AdmissionSettings) -> list[patches.Operation]:
    """Return the operation that removes a name which a manifest or template brought and nobody checked."""
    if (
        meta.annotation(_KEY) is None
        or _of_a_minicluster(meta.controller)
        or submitter_mark(review, meta, settings)
    ):
        return []
    return [
        operation
        for operation in patches.drop("/metadata", meta, (_KEY,))
        if operation.path.startswith("/metadata/annotations/")
    ]


def decide_minicluster(
    review: Review, minicluster: ReviewedMiniCluster, settings: AdmissionSettings
) -> Decision:
    """Write on a MiniCluster who creates it: its Job is created by the queue, which passes the name on."""
    meta = minicluster.metadata
    operations = patches.annotate("/metadata", meta, submitter_mark(review, meta, settings)) + unwanted_mark(
        review, meta, settings
    )
    return Decision(AdmissionOutcome.PASSED, tuple(operations))


def _told_by_its_owner(meta: ObjectMeta) -> bool:
    owner = meta.controller
    if owner is None:
        return False
    if owner.kind == "Job" and owner.api_version.partition("/")[0] == "batch":
        return True
    return _of_a_minicluster(owner) and meta.annotation(_KEY) is not None


def _of_a_minicluster(owner: OwnerReference | None) -> bool:
    return (
        owner is not None
        and owner.kind == "MiniCluster"
        and owner.api_version.partition("/")[0] == names.MINICLUSTER_GROUP
    )
