"""What a ResourceQuota counts of a pod, and how much it leaves.

The names are those of the quota's status, each in one of its spellings: ``cpu`` is ``requests.cpu``. Amounts
are integers: cpu in millicores, the others in their base unit. What a pod asks for is rounded up, as the API
server counts it, and a bound is rounded down.

A limit that a container does not state is counted as its request, which is never more: whether the API server
sets a default is not known here. A scope that is not known here counts no pod. So work is never kept waiting
by a quota that would let it start. The API server still refuses what a quota does not allow, and such work is
matched again (`fluxqueue.queue.requeue.pod_refusals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

import msgspec

from fluxqueue.api.clusterobjects import ResourceQuota, ScopeRequirement
from fluxqueue.api.formatting import format_quantity
from fluxqueue.api.pods import Container, PodSpec, ResourceRequirements
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.requests import InvalidRequest, pod_requests

__all__ = ["LARGEST", "amount_in_words", "amounts_left", "counts", "hard_amounts", "pod_amounts"]

_PODS = ("pods", "count/pods")
_REQUESTS, _LIMITS = "requests.", "limits."
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_CPU = ("requests.cpu", "limits.cpu")
_MILLI = 1000
LARGEST = 1 << 60
"""More counts as this, so that it fits into 64 bits."""


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """Return what a pod of this spec uses of quotas, by name.

    Parameters
    ----------
    spec
        With the defaults that admission adds (`fluxqueue.api.poddefaults`).
    """
    try:
        requests, limits = pod_requests(spec), pod_requests(_with_limits_first(spec))
    except InvalidRequest:
        return {}
    amounts = {
        name: _rounded_up(name, amount) for each, amount in requests.items() if (name := f"{_REQUESTS}{each}")
    }
    amounts |= {
        name: _rounded_up(name, limits[each])
        for each in _PLAIN
        if each in limits and (name := f"{_LIMITS}{each}")
    }
    return amounts | dict.fromkeys(_PODS, 1)


def hard_amounts(quota: ResourceQuota) -> dict[str, int]:
    """Return the bounds of a quota on what pods use, by name; the other bounds are left out."""
    bounds: dict[str, int] = {}
    for name, bound in _parsed(quota.status.hard).items():
        least = math.floor(bound * _MILLI if name in _CPU else bound)
        bounds[name] = min(least, LARGEST)
    return bounds


def amounts_left(quota: ResourceQuota) -> dict[str, int]:
    """Return what a quota leaves by its own count; 0 of what is used up."""
    used = {name: _rounded_up(name, amount) for name, amount in _parsed(quota.status.used).items()}
    return {name: max(bound - used.get(name, 0), 0) for name, bound in hard_amounts(quota).items()}


def counts(quota: ResourceQuota, spec: PodSpec, default_class: str) -> bool:
    """True if a quota counts a pod of this spec.

    Parameters
    ----------
    quota
        With its scopes.
    spec
        With the defaults that admission adds.
    default_class
        The PriorityClass of pods that name none; empty if there is none.
    """
    requirements = [
        ScopeRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes or ()
    ]
    if quota.spec.scope_selector is not None:
        requirements += quota.spec.scope_selector.match_expressions or ()
    return all(_holds(each, spec, default_class) for each in requirements)


def amount_in_words(name: str, amount: int) -> str:
    """Return an amount for people: ``2 requests.cpu``, ``4 GiB requests.memory``, ``3 pods``."""
    resource = name.removeprefix(_REQUESTS).removeprefix(_LIMITS)
    text = format_quantity(resource, amount / _MILLI if name in _CPU else amount)
    return f"{text.removesuffix(resource)}{name}"


def _holds(requirement: ScopeRequirement, spec: PodSpec, default_class: str) -> bool:
    terminating = spec.active_deadline_seconds is not None
    match requirement.scope_name:
        case "Terminating":
            return terminating
        case "NotTerminating":
            return not terminating
        case "BestEffort":
            return _is_best_effort(spec)
        case "NotBestEffort":
            return not _is_best_effort(spec)
        case "PriorityClass":
            return _selects(requirement, spec.priority_class_name or default_class)
    return False


def _selects(requirement: ScopeRequirement, name: str) -> bool:
    match requirement.operator:
        case "In":
            return name in (requirement.values or ())
        case "NotIn":
            return name not in (requirement.values or ())
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
    return False


def _is_best_effort(spec: PodSpec) -> bool:
    """True if no container requests or is limited in cpu or memory."""
    every = [each.resources for each in (*spec.containers, *(spec.init_containers or ()))]
    if spec.resources is not None:
        every.append(spec.resources)
    return not any(
        name in ("cpu", "memory") for each in every for name in (*(each.requests or ()), *(each.limits or ()))
    )


def _with_limits_first(spec: PodSpec) -> PodSpec:
    """Return a spec whose requests are its limits, where it has limits."""
    return msgspec.structs.replace(
        spec,
        containers=[_limited(each) for each in spec.containers],
        init_containers=[_limited(each) for each in spec.init_containers or ()] or None,
        resources=_limits_first(spec.resources) if spec.resources is not None else None,
    )


def _limited(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=_limits_first(container.resources))


def _limits_first(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(
        requests={**(resources.requests or {}), **(resources.limits or {})}, limits=resources.limits
    )


def _parsed(written: Mapping[str, str | int | float] | None) -> dict[str, Decimal]:
    """Return the amounts of what pods use, by the longest spelling of each name."""
    amounts: dict[str, Decimal] = {}
    for name, text in (written or {}).items():
        if name in _PLAIN or name.startswith("hugepages-"):
            name = f"{_REQUESTS}{name}"
        if name not in _PODS and not name.startswith((_REQUESTS, _LIMITS)):
            continue
        try:
            amount = parse_quantity(text)
        except InvalidQuantity:
            continue  # the API server accepts only valid quantities
        amounts[name] = min(amount, amounts.get(name, amount))
    return amounts


def _rounded_up(name: str, amount: Decimal) -> int:
    return min(math.ceil(amount * _MILLI if name in _CPU else amount), LARGEST)
