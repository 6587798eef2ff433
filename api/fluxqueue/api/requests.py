"""What a pod asks of a node, summed as Kubernetes sums it.

The scheduler's rule: containers and sidecars add up; an ordinary init container runs alone beside the sidecars started before it, so
the largest such moment counts; pod-level resources, where set, replace the sum for the resources they name; pod overhead comes on
top (KEP-753, KEP-2837, KEP-688; PodRequests in k8s.io/component-helpers/resource). A limit without a request is a request: the API server
has defaulted that before we read a pod, and for templates, which it does not default, we do it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from fluxqueue.api.objects import Container, PodSpec, Resources
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["InvalidRequest", "pod_level_requests", "pod_requests", "summed"]


class InvalidRequest(ValueError):
    """A request that cannot be read; the message names the container and the resource."""


def pod_requests(spec: PodSpec) -> dict[str, Decimal]:
    """Effective requests of one pod.

    Parameters
    ----------
    spec
        The pod's spec, or that of a template.

    Returns
    -------
    dict
        Resource name -> amount in its base unit (cores, bytes, pieces); resources asked with 0 are left out.

    Raises
    ------
    InvalidRequest
        A quantity that is none, with the container and resource it stands in.
    """
    running = _containers(spec)
    running.update(_pod_level(spec, running))
    _add(running, {name: _quantity(value, "overhead", name) for name, value in (spec.overhead or {}).items()})
    return {name: amount for name, amount in running.items() if amount}


def pod_level_requests(spec: PodSpec) -> dict[str, Decimal]:
    """What the pod asks for as a whole (``spec.resources``), which counts instead of its containers' sum.

    Where a resource has a limit there and no request, the containers' sum is its request, and the limit only where no container asks for
    it (KEP-2837; defaultPodRequests of the API server). Only cpu, memory and huge pages can be asked for in this way.

    Raises
    ------
    InvalidRequest
        As `pod_requests`.
    """
    return _pod_level(spec, _containers(spec))


def _pod_level(spec: PodSpec, containers: Mapping[str, Decimal]) -> dict[str, Decimal]:
    if spec.resources is None:
        return {}
    found: dict[str, Decimal] = {}
    for name, value in {**(spec.resources.limits or {}), **(spec.resources.requests or {})}.items():
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            continue
        said = name in (spec.resources.requests or {})
        found[name] = _quantity(value, "the pod", name) if said or name not in containers else containers[name]
    return found


def _containers(spec: PodSpec) -> dict[str, Decimal]:
    running: dict[str, Decimal] = {}
    for container in spec.containers:
        _add(running, _requests(container))
    started: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.init_containers or ():
        asked = _requests(container)
        if container.restart_policy == "Always":
            _add(running, asked)
            _add(started, asked)
            _raise_to(peak, started)
        else:
            alone = dict(started)
            _add(alone, asked)
            _raise_to(peak, alone)
    _raise_to(running, peak)
    return running


def _requests(container: Container) -> dict[str, Decimal]:
    return _read(container.resources, f"container {container.name!r}")


def _read(resources: Resources, where: str) -> dict[str, Decimal]:
    merged = {**(resources.limits or {}), **(resources.requests or {})}
    return {name: _quantity(value, where, name) for name, value in merged.items()}


def _quantity(value: str | int | float, where: str, resource: str) -> Decimal:
    try:
        return parse_quantity(value)
    except InvalidQuantity as error:
        raise InvalidRequest(f"{where} requests {resource}: {error}") from None


def _add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal()) + amount


def _raise_to(total: dict[str, Decimal], floor: Mapping[str, Decimal]) -> None:
    for name, amount in floor.items():
        if amount > total.get(name, Decimal()):
            total[name] = amount


def summed(requests: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """Several pods' requests together."""
    total: dict[str, Decimal] = {}
    for request in requests:
        _add(total, request)
    return total
