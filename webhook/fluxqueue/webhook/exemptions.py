"""Who and what is left alone.

Two kinds of exemption, and the difference matters. The first goes by *who asks and where*: kubelets creating their mirror pods, the
DaemonSet controller, and the system's namespaces. Nobody can put that into a manifest; ownerReferences anyone can write, so a
DaemonSet owner counts only together with a requester that is a DaemonSet controller. The second goes by *what the object says about
itself*: a node already chosen, an opt-out, another queue's label, another controller. A person may say these things, and an object
that says them gets nothing from us either: no allocation is honoured on its account.

The webhook configuration's selectors and match conditions keep most of these away from us. They are repeated here because a
configuration can be edited, and because a webhook that gates a node's network plugin takes the node down.
"""

from __future__ import annotations

import enum

from fluxqueue.api import names
from fluxqueue.api.objects import ObjectMeta
from fluxqueue.webhook.decisions import Settings
from fluxqueue.webhook.reviews import Review, ReviewedJob, ReviewedPod

__all__ = ["Exemption", "job_exemption", "pod_exemption", "request_exemption"]


class Exemption(enum.StrEnum):
    """Why an object is not ours."""

    NAMESPACE = "namespace"
    NODE = "node"
    DAEMON_SET = "daemon set"
    NODE_CHOSEN = "spec.nodeName"
    MANAGED_BY = "spec.managedBy"
    OTHER_QUEUE = "another queue's label"
    OPTED_OUT = "opted out"


def request_exemption(review: Review, settings: Settings) -> Exemption | None:
    """Whether who asks, or where, takes the object out of our hands.

    Parameters
    ----------
    review
        Of a Job or Pod.
    settings
        Namespaces and identities.

    Returns
    -------
    Exemption or None
        None when the request is ours to judge.
    """
    if review.namespace in settings.exempt_namespaces:
        return Exemption.NAMESPACE
    if review.requester.startswith(names.NODE_USER_PREFIX):
        return Exemption.NODE
    if review.requester in settings.daemonset_controllers and review.object is not None:
        owner = review.object.metadata.controller
        if owner is not None and owner.kind == "DaemonSet":
            return Exemption.DAEMON_SET
    return None


def job_exemption(job: ReviewedJob) -> Exemption | None:
    """Whether a Job says of itself that it is not ours."""
    if job.spec.managed_by:
        return Exemption.MANAGED_BY
    if job.spec.template.spec.node_name:
        return Exemption.NODE_CHOSEN
    return _label_exemption(job.metadata) or _label_exemption(job.spec.template.metadata)


def pod_exemption(pod: ReviewedPod) -> Exemption | None:
    """Whether a pod says of itself that it is not ours."""
    if pod.spec.node_name:
        return Exemption.NODE_CHOSEN
    return _label_exemption(pod.metadata)


def _label_exemption(meta: ObjectMeta | None) -> Exemption | None:
    if meta is None:
        return None
    if meta.label(names.KUEUE_QUEUE_LABEL):
        return Exemption.OTHER_QUEUE
    if meta.label(names.MANAGED_LABEL) == "false":
        return Exemption.OPTED_OUT
    return None
