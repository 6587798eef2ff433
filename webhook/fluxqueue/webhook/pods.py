"""A pod at admission: gated, or pinned to the node its allocation gives it.

A pod without an allocation gets our scheduling gate and waits. A pod that carries one is pinned and let go, and that is a free pass,
so it matters who gave it. Only a Job's template can have: the requester must be an identity we know as the Job controller, the
controlling owner must be a Job (a controller manager with one identity for all its controllers creates the pods of Deployments too,
and their templates are not guarded), and policy guards the templates of Jobs. Whatever else claims an allocation is refused.

A trusted pod whose allocation holds no node for it (an index added by growing the Job, one that had finished, a list nobody can read)
is gated, and the allocation is taken off it: it has none, and the queue will find it one as for any gated pod. A template released
with a pin carries our gate as well, so that pods which bypassed us while we were away stay gated instead of running anywhere; here
the gate comes off as the pin goes on.

A pod that is to be a broker of a Flux cluster gets Flux on top of either (`fluxqueue.webhook.brokers`).
"""

from __future__ import annotations

from dataclasses import replace

from fluxqueue.api import names
from fluxqueue.minicluster.marks import InvalidMarks
from fluxqueue.webhook import patches, pins
from fluxqueue.webhook.annotations import carried_keys, forged, unreadable
from fluxqueue.webhook.brokers import asks, inject_flux
from fluxqueue.webhook.decisions import Decision, Outcome, Refusal, Settings
from fluxqueue.webhook.exemptions import pod_exemption
from fluxqueue.webhook.reviews import Review, ReviewedPod

__all__ = ["decide_pod"]

_SEEN = {names.SEEN_LABEL: names.SEEN_VALUE}


def decide_pod(review: Review, pod: ReviewedPod, settings: Settings) -> Decision:
    """Decide about a pod that is to be created.

    Parameters
    ----------
    review
        For the requester, and names in sentences.
    pod
        Its object.
    settings
        Whose allocations are honoured.

    Returns
    -------
    Decision
        Pinned, held, exempt or refused. From the object's state alone, so that a second pass over the patched object changes nothing.
    """
    keys = carried_keys(pod.metadata)
    if keys and not _trusted(review, pod, settings):
        return Decision(Outcome.REFUSED, refusal=forged(review, keys))
    if names.ALLOCATION_ANNOTATION in keys or names.NODES_ANNOTATION in keys:
        return _with_flux(review, pod, _place(review, pod))
    if pod_exemption(pod) is not None:
        return Decision(Outcome.EXEMPT)
    problems = unreadable(review, pod.metadata)
    if problems and pod.metadata.controller is None:
        return Decision(Outcome.REFUSED, refusal=Refusal("Invalid", problems[0]))
    return _with_flux(review, pod, _hold(pod, problems))


def _with_flux(review: Review, pod: ReviewedPod, decision: Decision) -> Decision:
    """The same for a pod that asks to be a broker, with Flux put into it; one that cannot be is held, and the queue says why."""
    if not asks(pod.metadata):
        return decision
    try:
        return replace(decision, operations=(*decision.operations, *inject_flux(review, pod)))
    except InvalidMarks as problem:
        return _hold(pod, (f"{review.describe()} is held: {problem}",), without=names.ALLOCATION_KEYS)


def _trusted(review: Review, pod: ReviewedPod, settings: Settings) -> bool:
    owner = pod.metadata.controller
    return (
        review.requester in settings.job_controllers
        and owner is not None
        and owner.kind == "Job"
        and owner.api_version.partition("/")[0] == "batch"
    )


def _place(review: Review, pod: ReviewedPod) -> Decision:
    try:
        affinity = pins.read_affinity(pod.spec.affinity)
        node = None if pod.spec.gated_by(names.GATE) else pins.pinned_to(pod.metadata, affinity)
        node = node or pins.node_of(pod.metadata)
        placed = pins.pin(affinity, node)
    except pins.Unpinnable as problem:
        return _hold(pod, (f"{review.describe()} is held: {problem}",), without=names.ALLOCATION_KEYS)
    operations = [
        *patches.label("/metadata", pod.metadata, _SEEN),
        *patches.annotate("/metadata", pod.metadata, {names.NODES_ANNOTATION: node}),
        *placed,
        *patches.ungate(pod.spec.scheduling_gates, names.GATE),
    ]
    return Decision(Outcome.PINNED, tuple(operations))


def _hold(pod: ReviewedPod, warnings: tuple[str, ...], without: tuple[str, ...] = ()) -> Decision:
    operations = [
        *patches.label("/metadata", pod.metadata, _SEEN),
        *patches.drop("/metadata", pod.metadata, without),
        *patches.gate(pod.spec.scheduling_gates, names.GATE),
    ]
    return Decision(Outcome.HELD, tuple(operations), warnings)
