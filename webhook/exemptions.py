"""Which requests and objects fluxqueue does not manage.

There are two kinds of exemption, and the difference matters. The first depends on *who requests and where*:
kubelets that create their mirror pods, the DaemonSet controller, and the system's namespaces. A manifest
cannot contain that. Anyone can write ownerReferences, so a DaemonSet owner counts only if the requester is a
DaemonSet controller as well. The second depends on *the fields of the object*: a node already chosen, an
opt-out, another queue's label, another controller. Users may write these fields, and an object with them gets
nothing from fluxqueue either: no allocation is accepted because of them. Another webhook may write them after
our first pass. The API server then asks again, and what the first pass did to hold the object is taken back.

The selectors and match conditions of the webhook configuration exclude most of these objects. They are
checked here again because a configuration can be edited, and because a webhook that gates the network plugin
of a node makes the node unusable.
"""

from __future__ import annotations

import enum

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.reviews import Review, ReviewedJob, ReviewedPod

__all__ = ["Exemption", "job_exemption", "pod_exemption", "request_exemption"]


class Exemption(enum.StrEnum):
    """Why fluxqueue does not manage an object."""

    NAMESPACE = "namespace"
    NODE = "node"
    DAEMON_SET = "daemon set"
    NODE_CHOSEN = "spec.nodeName"
    MANAGED_BY = "spec.managedBy"
    OTHER_QUEUE = "another queue's label"
    OPTED_OUT = "opted out"
    EMPTY = "spec.completions 0"


def request_exemption(review: Review, settings: AdmissionSettings) -> Exemption | None:
    """Return why a request is exempt because of its requester or namespace.

    Returns
    -------
    Exemption or None
        None if the request is not exempt.
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
    """Return why a Job is exempt because of its own fields, or None.

    A Job with no completions has nothing to be matched: its controller completes it at once.
    """
    if job.spec.completions == 0:
        return Exemption.EMPTY
    if job.spec.managed_by not in (None, "", names.JOB_CONTROLLER):
        return Exemption.MANAGED_BY
    if job.spec.template.spec.node_name:
        return Exemption.NODE_CHOSEN
    return _label_exemption(job.metadata) or _label_exemption(job.spec.template.metadata)


def pod_exemption(pod: ReviewedPod) -> Exemption | None:
    """Return why a pod is exempt because of its own fields, or None."""
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
