"""The effective requests of a pod, summed as the scheduler sums them.

The rules are those of PodRequests in k8s.io/component-helpers/resource (KEP-753, KEP-2837, KEP-688). The
requests of containers and sidecars are added. An ordinary init container runs alone with the sidecars that
were started before it, so the maximum over time counts. Pod-level resources replace the sum of the resources
that they name. The pod's overhead is added. A limit without a request is also the request: the API server
writes that into pods, and this module does it for templates.

No quantity, and no sum of quantities, exceeds `fluxqueue.api.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Protocol

from fluxqueue.api.bounds import maximum, maximum_text
from fluxqueue.api.pods import Container, ContainerStatus, Pod, PodSpec, ResourceRequirements
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["InvalidRequest", "pod_level_requests", "pod_requests", "pod_usage", "sum_requests"]


class InvalidRequest(ValueError):
    """A request that is not a quantity or exceeds its bound;
    the message names the container and the resource.
    """


def pod_requests(spec: PodSpec) -> dict[str, Decimal]:
    """Return the effective requests of one pod.

    Parameters
    ----------
    spec
        The spec of the pod or of a template.

    Returns
    -------
    dict
        Resource name -> amount in its base unit (cores, bytes, items), without resources whose request is 0.

    Raises
    ------
    InvalidRequest
        A quantity, or the sum, is invalid or exceeds its bound; with the container and the resource.
    """
    running = _containers(spec)
    running.update(_pod_level(spec, running))
    _add(running, {name: _quantity(value, "overhead", name) for name, value in (spec.overhead or {}).items()})
    for name, amount in running.items():
        if amount > maximum(name):
            raise InvalidRequest(
                f"the pod requests more {name} in all than the most one pod may ask for, which is "
                f"{maximum_text(name)}: lower it"
            )
    return {name: amount for name, amount in running.items() if amount}


def pod_usage(pod: Pod) -> dict[str, Decimal]:
    """Return what a bound pod uses of its node, as the scheduler counts it (PodRequests with
    UseStatusResources).

    While a pod is resized in place, the maximum of three amounts counts: requested, allocated by the node,
    and in effect. If the node declares the resize infeasible, the requested amount does not count (KEP-1287).
    No bounds apply, because the pod already has the resources.

    Returns
    -------
    dict
        Resource name -> amount in its base unit. An invalid quantity counts as none; the API server accepts
        no such pod.
    """
    statuses = {
        status.name: status
        for status in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    }
    infeasible = _resize_is_infeasible(pod)

    def usage(container: Container, *, stays: bool) -> dict[str, Decimal]:
        own = _valid(container.resources)
        status = statuses.get(container.name) if stays else None
        return (
            own
            if status is None or status.resources is None
            else _effective(own, status, infeasible=infeasible)
        )

    used = _maximum_over_time(pod.spec, usage)
    if pod.spec.resources is not None:
        own = {
            name: amount
            for name, amount in _valid(pod.spec.resources, with_limits=False).items()
            if _is_pod_level(name)
        }
        status = pod.status
        if own and status.resources is not None:
            as_container = ContainerStatus(
                resources=status.resources, allocated_resources=status.allocated_resources
            )
            effective = _effective(own, as_container, infeasible=infeasible)
            own = {name: effective.get(name, Decimal()) for name in own}
        used.update(own)
    _add(used, _valid(ResourceRequirements(requests=pod.spec.overhead)))
    return {name: amount for name, amount in used.items() if amount}


def _resize_is_infeasible(pod: Pod) -> bool:
    condition = pod.status.condition("PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def _effective(
    requested: Mapping[str, Decimal], status: ContainerStatus, *, infeasible: bool
) -> dict[str, Decimal]:
    effective = {} if infeasible else dict(requested)
    _raise_to(effective, _valid(status.resources or ResourceRequirements(), with_limits=False))
    _raise_to(effective, _valid(ResourceRequirements(requests=status.allocated_resources)))
    return effective


def _valid(resources: ResourceRequirements, *, with_limits: bool = True) -> dict[str, Decimal]:
    written = resources.requests or {}
    if with_limits and resources.limits:
        written = {**resources.limits, **written}
    amounts: dict[str, Decimal] = {}
    for name, value in written.items():
        try:
            amounts[name] = parse_quantity(value)
        except InvalidQuantity:
            continue
    return amounts


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def pod_level_requests(spec: PodSpec) -> dict[str, Decimal]:
    """Return the pod-level requests (``spec.resources``), which replace the sum of the containers' requests.

    If a resource has a pod-level limit and no pod-level request, its request is the sum of the containers'
    requests, or the limit if no container requests it (KEP-2837; defaultPodRequests of the API server).
    Pod-level requests exist for cpu, memory and huge pages.

    Raises
    ------
    InvalidRequest
        See `pod_requests`.
    """
    return _pod_level(spec, _containers(spec))


def _pod_level(spec: PodSpec, containers: Mapping[str, Decimal]) -> dict[str, Decimal]:
    if spec.resources is None:
        return {}
    amounts: dict[str, Decimal] = {}
    for name, value in {**(spec.resources.limits or {}), **(spec.resources.requests or {})}.items():
        if not _is_pod_level(name):
            continue
        requested = name in (spec.resources.requests or {})
        amounts[name] = (
            _quantity(value, "the pod", name) if requested or name not in containers else containers[name]
        )
    return amounts


def _containers(spec: PodSpec) -> dict[str, Decimal]:
    return _maximum_over_time(spec, _requests)


class _AmountsOf(Protocol):
    """The amounts of one container; ``stays`` is true if the container runs as long as the pod."""

    def __call__(self, container: Container, *, stays: bool) -> Mapping[str, Decimal]: ...


def _maximum_over_time(spec: PodSpec, amounts_of: _AmountsOf) -> dict[str, Decimal]:
    """Return the maximum that the containers of a pod use at the same time."""
    running: dict[str, Decimal] = {}
    for container in spec.containers:
        _add(running, amounts_of(container, stays=True))
    started: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecar = amounts_of(container, stays=True)
            _add(running, sidecar)
            _add(started, sidecar)
            _raise_to(peak, started)
        else:
            alone = dict(started)
            _add(alone, amounts_of(container, stays=False))
            _raise_to(peak, alone)
    _raise_to(running, peak)
    return running


def _requests(container: Container, *, stays: bool) -> dict[str, Decimal]:
    merged = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {name: _quantity(value, f"container {container.name!r}", name) for name, value in merged.items()}


def _quantity(value: str | int | float, where: str, resource: str) -> Decimal:
    try:
        amount = parse_quantity(value)
    except InvalidQuantity as error:
        raise InvalidRequest(f"{where} requests {resource}: {error}") from None
    if amount > maximum(resource):
        raise InvalidRequest(
            f"{where} requests {value!s:.40} {resource}: the most one pod may ask for is "
            f"{maximum_text(resource)}, lower it"
        )
    return amount


def _add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal()) + amount


def _raise_to(total: dict[str, Decimal], floor: Mapping[str, Decimal]) -> None:
    for name, amount in floor.items():
        if amount > total.get(name, Decimal()):
            total[name] = amount


def sum_requests(requests: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """Return the sum of several pods' requests."""
    total: dict[str, Decimal] = {}
    for request in requests:
        _add(total, request)
    return total
