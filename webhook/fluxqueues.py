"""Validation of FluxQueues beyond their schema.

A selector with a key or value that no object can carry is accepted by the schema and never matches anything.
Whether a selector matches nodes *now* is a different question, because nodes come and go: the queue reports
it in the FluxQueue's status (condition ``Starting``, reason ``NoNodes``) and as the workloads' reason
``Unsatisfiable``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fluxqueue.api.fluxqueues import (
    FluxQueue,
    FluxQueueSpec,
    Limits,
    Planning,
    Policy,
    Preemption,
    SchedulerName,
    WorkloadLimits,
)
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.topology import InvalidTopology, read_slice, topology_of
from fluxqueue.webhook.annotations import NOT_INSTALLED
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.labels import bad_labels
from fluxqueue.webhook.problems import ObjectProblems

__all__ = ["validate_fluxqueue"]

_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def validate_fluxqueue(queue: FluxQueue, settings: AdmissionSettings) -> ObjectProblems:
    """Return what is wrong with the rules of a queue.

    Parameters
    ----------
    queue
        The queue as it would be stored.
    settings
        Whether a scheduler of ours is installed, and the levels of the topology.
    """
    spec = queue.spec
    unknown: tuple[str, ...] = ()
    if spec.scheduler is SchedulerName.FLUXION and settings.choices is None:
        unknown = (
            (
                f"spec.scheduler is fluxion: {NOT_INSTALLED}, the cluster's own scheduler binds the pods of "
                "this queue"
            ),
        )
    return ObjectProblems(
        errors=tuple(_errors(spec)),
        warnings=(*_warnings(spec), *unknown, *_topology_warnings(spec, settings)),
    )


def _errors(spec: FluxQueueSpec) -> Iterator[str]:
    yield from bad_labels("spec.nodeSelector", spec.node_selector or {}, "no node can have it")
    for number, each in enumerate(spec.flavors or ()):
        field = f"spec.flavors[{number}].nodeSelector"
        yield from bad_labels(field, each.node_selector or {}, "no node can have it")
    members = spec.namespaces
    if members is not None:
        yield from bad_labels(
            "spec.namespaces.matchLabels", members.match_labels or {}, "no namespace can have it"
        )
        for name in members.names or ():
            if not _NAMESPACE.fullmatch(name):
                yield f"spec.namespaces.names: {name!r} is no name of a namespace: correct or remove it"
    if spec.topology is not None and spec.topology.slice:
        try:
            read_slice(spec.topology.slice)
        except InvalidTopology as error:
            yield f"spec.topology.slice: {error}"


def _warnings(spec: FluxQueueSpec) -> Iterator[str]:
    enforced = spec.enforce_duration
    if enforced is not None and not enforced.enabled:
        yield (
            "spec.enforceDuration is not enabled: work is not ended at the end of its duration; set "
            "spec.enforceDuration.enabled to true"
        )
    moves = spec.consolidation is not None and spec.consolidation.enabled
    if spec.preemption_rules is not None and spec.preemption is not Preemption.LOWER_PRIORITY and not moves:
        yield (
            "spec.preemptionRules has no effect: work of this queue is preempted only if spec.preemption is "
            "lowerPriority"
        )
    yield from _consolidation_warnings(spec)
    if spec.policy is Policy.FCFS and spec.planning not in (None, Planning()):
        yield (
            "spec.planning has no effect: the policy fcfs makes no reservations; "
            "set spec.policy to easy, hybrid or conservative"
        )
    limits = spec.limits
    if limits is None:
        return
    yield from _zeroes("spec.limits", limits, ": to stop it for a while set spec.state to held")
    parts = (
        ("perNamespace", limits.per_namespace),
        ("perUser", limits.per_user),
        ("perWorkload", limits.per_workload),
    )
    for field, part in parts:
        if part is not None:
            yield from _zeroes(f"spec.limits.{field}", part)
            yield from _above(f"spec.limits.{field}", limits, part)


def _consolidation_warnings(spec: FluxQueueSpec) -> Iterator[str]:
    rules = spec.consolidation
    if rules is None:
        return
    if not rules.enabled:
        yield ("spec.consolidation is not enabled: no work is moved; set spec.consolidation.enabled to true")
    elif spec.policy is Policy.FCFS:
        yield (
            "spec.consolidation has no effect: the policy fcfs plans no starts, so nobody knows what is won; "
            "set spec.policy to easy, hybrid or conservative"
        )
    elif rules.max_lost_seconds <= (least := _least_run_s(spec)):
        yield (
            f"spec.consolidation.maxLostSeconds is {rules.max_lost_seconds}, but work runs at least {least} "
            "s (spec.preemptionRules.minRunSeconds): only work that told of a checkpoint is moved; raise the "
            "one or lower the other"
        )


def _least_run_s(spec: FluxQueueSpec) -> int:
    return spec.preemption_rules.min_run_seconds if spec.preemption_rules is not None else 0


def _topology_warnings(spec: FluxQueueSpec, settings: AdmissionSettings) -> Iterator[str]:
    """Say why work cannot have the defaults of its queue.
    It is no error: the levels of an installation may change after its queues.
    """
    if spec.topology is None or not settings.levels:
        return
    try:
        topology_of((), spec.topology.annotations, settings.levels)
    except InvalidTopology as error:
        yield f"spec.topology: {error}; work that relies on it is invalid (InvalidRequest)"


def _above(field: str, limits: Limits, parts: Limits | WorkloadLimits) -> Iterator[str]:
    """Say which limits of a part are above those of the whole queue."""
    for name in ("running", "nodes", "cores"):
        whole, part = getattr(limits, name), getattr(parts, name, None)
        if whole is not None and part is not None and part > whole:
            yield f"{field}.{name} is {part}, but the whole queue may use {whole}: the lower one counts"


def _zeroes(field: str, limits: Limits | WorkloadLimits, remedy: str = "") -> Iterator[str]:
    """Say what cannot start because of a limit of 0.
    All work is work that runs on nodes, whatever it asks for.
    """
    for name in ("running", "nodes"):
        if getattr(limits, name, None) == 0:
            yield f"{field}.{name} is 0: nothing of this queue can start{remedy}"
    if limits.cores == 0:
        yield f"{field}.cores is 0: no work of this queue that asks for cores can start"
    for name, amount in (limits.resources or {}).items():
        if parse_quantity(amount) == 0:
            yield f"{field}.resources: {name} is 0: no work of this queue that asks for it can start"
