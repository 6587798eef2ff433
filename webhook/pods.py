"""Admission of pods: a pod is gated, or pinned to the node of its allocation.

A pod without an allocation gets our scheduling gate and waits. A pod with an allocation is pinned and not
gated, so it matters who gave it the allocation. Only a Job's template can have: the requester must be a known
identity of the Job controller, and the controlling owner must be a Job. (A controller manager with one
identity for all its controllers also creates the pods of Deployments, whose templates are not guarded.) A
policy guards the templates of Jobs. Any other allocation is refused.

A trusted pod is gated and loses its allocation in two cases: its allocation has no node for it (an index
added by growing the Job, an index that had finished, an unreadable list), or the pin window of its Job has
closed (`fluxqueue.api.pinwindows`). The queue then decides on its node, as for any gated pod. A template
released with a pin carries our gate as well, so that pods created while the webhook was unavailable stay
gated instead of running anywhere. The webhook removes the gate when it adds the pin.

The scheduler of a pod cannot be changed once it exists. So a pod of our own scheduler gets that scheduler's
name, gated or not. It is not pinned by affinity; its node is written into its annotation
(`fluxqueue.webhook.choices`).

A pod that becomes a broker of a Flux cluster gets Flux in either case (`fluxqueue.webhook.brokers`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.moldable import floor_problem
from fluxqueue.api.pinwindows import pin_until
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.webhook import patches, pins
from fluxqueue.webhook.annotations import carried_keys, forged, not_installed, unreadable
from fluxqueue.webhook.brokers import inject_flux, requests_broker
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionRefusal, AdmissionSettings, Decision
from fluxqueue.webhook.exemptions import pod_exemption
from fluxqueue.webhook.reviews import Review, ReviewedPod
from fluxqueue.webhook.submitters import submitter_mark, unwanted_mark

__all__ = ["decide_pod"]

_SEEN = {names.SEEN_LABEL: names.SEEN_VALUE}


def decide_pod(review: Review, pod: ReviewedPod, settings: AdmissionSettings, now: dt.datetime) -> Decision:
    """Decide on the creation of a pod.

    Parameters
    ----------
    review
        The review, for the requester and for names in sentences.
    pod
        The pod under review.
    settings
        The trusted identities.
    now
        The time, with a zone.

    Returns
    -------
    Decision
        Pinned, held, exempt or refused. It depends only on the object's state: a second pass over the patched
        object changes nothing.
    """
    keys = carried_keys(pod.metadata)
    if keys and not _trusted(review, pod, settings):
        return Decision(AdmissionOutcome.REFUSED, refusal=forged(review, keys))
    ours = _ours(review, pod, settings)
    if names.ALLOCATION_ANNOTATION in keys or names.NODES_ANNOTATION in keys:
        return _with_flux(review, pod, _pin(review, pod, now, ours=ours), ours=ours)
    if pod_exemption(pod) is not None:
        return Decision(AdmissionOutcome.EXEMPT, tuple(_taken_back(pod)))
    problems = unreadable(review, settings, pod.metadata)
    if problem := floor_problem(pod.metadata):
        problems = (*problems, f"{review.describe()}: {problem}")
    if problems and pod.metadata.controller is None:
        return Decision(AdmissionOutcome.REFUSED, refusal=AdmissionRefusal("Invalid", problems[0]))
    if settings.choices is None:
        problems += not_installed(review, pod.spec.scheduler_name, pod.metadata)
    held = _gate(pod, problems, ours=ours)
    marks = patches.annotate("/metadata", pod.metadata, submitter_mark(review, pod.metadata, settings))
    marks += unwanted_mark(review, pod.metadata, settings)
    return _with_flux(review, pod, replace(held, operations=(*held.operations, *marks)), ours=ours)


def _taken_back(pod: ReviewedPod) -> list[patches.Operation]:
    """Return what takes our gate back from a pod that another webhook took out of the queue after we had
    gated it.
    """
    return (
        patches.ungate(pod.spec.scheduling_gates, names.GATE)
        if pod.metadata.label(names.SEEN_LABEL) is not None
        else []
    )


def _ours(review: Review, pod: ReviewedPod, settings: AdmissionSettings) -> bool:
    """Return True if our own scheduler binds the pod."""
    choices = settings.choices
    return (
        choices is not None
        and choices.of_pod(review.namespace, pod.metadata, pod.spec.scheduler_name) is SchedulerName.FLUXION
    )


def _with_flux(review: Review, pod: ReviewedPod, decision: Decision, *, ours: bool) -> Decision:
    """Add Flux to a pod that requests to be a broker.
    A pod that cannot be one is gated, and the queue reports why.
    """
    if not requests_broker(pod.metadata):
        return decision
    try:
        return replace(decision, operations=(*decision.operations, *inject_flux(review, pod)))
    except InvalidInjection as problem:
        return _gate(
            pod, (f"{review.describe()} is held: {problem}",), without=names.ALLOCATION_KEYS, ours=ours
        )


def _trusted(review: Review, pod: ReviewedPod, settings: AdmissionSettings) -> bool:
    owner = pod.metadata.controller
    return (
        review.requester in settings.job_controllers
        and owner is not None
        and owner.kind == "Job"
        and owner.api_version.partition("/")[0] == "batch"
    )


def _pin(review: Review, pod: ReviewedPod, now: dt.datetime, *, ours: bool) -> Decision:
    try:
        affinity = None if ours else pins.read_affinity(pod.spec.affinity)
        node = _earlier_node(pod, affinity, ours=ours)
        if node is None and pin_until(pod.metadata) <= now:
            return _gate(pod, (), without=names.ALLOCATION_KEYS, ours=ours)
        node = node or pins.node_of(pod.metadata)
        pinned = _scheduler(pod) if ours else pins.pin(affinity, node)
    except pins.Unpinnable as problem:
        return _gate(
            pod, (f"{review.describe()} is held: {problem}",), without=names.ALLOCATION_KEYS, ours=ours
        )
    operations = [
        *patches.label("/metadata", pod.metadata, _SEEN),
        *patches.annotate("/metadata", pod.metadata, {names.NODES_ANNOTATION: node}),
        *pinned,
        *patches.ungate(pod.spec.scheduling_gates, names.GATE),
    ]
    return Decision(AdmissionOutcome.PINNED, tuple(operations))


def _earlier_node(pod: ReviewedPod, affinity: pins.Affinity | None, *, ours: bool) -> str | None:
    """Return the node that an earlier pass gave the pod. Such a pod has no gate of ours."""
    if pod.spec.gated_by(names.GATE):
        return None
    if not ours:
        return pins.pinned_to(pod.metadata, affinity)
    return pins.assigned_to(pod.metadata) if pod.spec.scheduler_name == names.SCHEDULER_NAME else None


def _scheduler(pod: ReviewedPod) -> list[patches.Operation]:
    """Return the operation that leaves the pod to our own scheduler."""
    return (
        []
        if pod.spec.scheduler_name == names.SCHEDULER_NAME
        else [patches.add("/spec/schedulerName", names.SCHEDULER_NAME)]
    )


def _gate(
    pod: ReviewedPod, warnings: tuple[str, ...], without: tuple[str, ...] = (), *, ours: bool
) -> Decision:
    operations = [
        *patches.label("/metadata", pod.metadata, _SEEN),
        *patches.drop("/metadata", pod.metadata, without),
        *(_scheduler(pod) if ours else ()),
        *patches.gate(pod.spec.scheduling_gates, names.GATE),
    ]
    return Decision(AdmissionOutcome.HELD, tuple(operations), warnings)
