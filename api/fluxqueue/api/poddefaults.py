"""What admission will add to a pod of a template, before there is a pod.

The API server completes pods when they are created, not the templates of Jobs. A Job is matched before it has pods, so what they will
ask for is worked out here: limits become requests where none are given (the defaulting of the API version), then the LimitRanges of the
namespace give containers that say nothing their default, then the RuntimeClass adds its overhead, node selector and tolerations. In
that order, as the API server does it: a LimitRange never overrules what was said, be it as a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fluxqueue.api.objects import Container, ObjectMeta, Part, PodSpec, Resources, Toleration
from fluxqueue.api.requests import pod_level_requests

__all__ = ["LimitRange", "LimitRangeItem", "LimitRangeSpec", "RuntimeClass", "RuntimeOverhead", "RuntimeScheduling", "with_defaults"]

Amounts = dict[str, str | int | float]


class LimitRangeItem(Part, frozen=True):
    """Defaults for things of one type; the API server has already filled ``default_request`` from ``default`` and ``max``."""

    type: str = ""
    default_request: Amounts | None = None


class LimitRangeSpec(Part, frozen=True):
    """The items of a LimitRange."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(Part, frozen=True):
    """A LimitRange of a namespace, as far as it changes requests."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class RuntimeOverhead(Part, frozen=True):
    """What a sandbox itself takes."""

    pod_fixed: Amounts | None = None


class RuntimeScheduling(Part, frozen=True):
    """Where pods of a runtime may run."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(Part, frozen=True):
    """A RuntimeClass (node.k8s.io/v1)."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: RuntimeOverhead | None = None
    scheduling: RuntimeScheduling | None = None


def with_defaults(spec: PodSpec, ranges: Iterable[LimitRange] = (), runtime: RuntimeClass | None = None) -> PodSpec:
    """The spec that a pod of this template will have, as far as placement goes.

    Parameters
    ----------
    spec
        Of a template.
    ranges
        The LimitRanges of its namespace.
    runtime
        Its RuntimeClass, None where it names none.

    Returns
    -------
    PodSpec
        The same where there is nothing to add.
    """
    defaults: Amounts = {}
    for item in (item for found in ranges for item in found.spec.limits or ()):
        if item.type == "Container":
            defaults = {**(item.default_request or {}), **defaults}  # the first that says something counts
    if defaults:
        spec = _with_requests(spec, defaults)
    return _with_runtime(spec, runtime) if runtime is not None else spec


def _with_requests(spec: PodSpec, defaults: Mapping[str, str | int | float]) -> PodSpec:
    resources = spec.resources
    if resources is not None:
        # Decided by what the containers say themselves, before anything is added to them.
        resources = Resources(requests={name: f"{amount:f}" for name, amount in pod_level_requests(spec).items()}, limits=resources.limits)
    return msgspec.structs.replace(
        spec,
        resources=resources,
        containers=[_filled(container, defaults) for container in spec.containers],
        init_containers=[_filled(container, defaults) for container in spec.init_containers or ()] or None,
    )


def _filled(container: Container, defaults: Mapping[str, str | int | float]) -> Container:
    said = container.resources
    requests = {**defaults, **(said.limits or {}), **(said.requests or {})}
    return msgspec.structs.replace(container, resources=Resources(requests=requests, limits=said.limits))


def _with_runtime(spec: PodSpec, runtime: RuntimeClass) -> PodSpec:
    overhead = runtime.overhead.pod_fixed if runtime.overhead is not None else None
    where = runtime.scheduling or RuntimeScheduling()
    return msgspec.structs.replace(
        spec,
        overhead=overhead if overhead is not None else spec.overhead,
        node_selector={**(spec.node_selector or {}), **where.node_selector} if where.node_selector else spec.node_selector,
        tolerations=[*(spec.tolerations or ()), *where.tolerations] if where.tolerations else spec.tolerations,
    )
