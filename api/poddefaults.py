"""The defaults that admission will add to the pods of a template.

The API server adds defaults to pods when they are created, and not to the templates of Jobs. A Job is matched
before it has pods, so the requests of its pods are computed here in the order of the API server: First,
limits become requests where there is no request (defaulting of the API version). Then the LimitRanges of the
namespace set the requests of containers that have neither. Then the RuntimeClass adds its overhead, node
selector and tolerations. So a LimitRange never overrides a request or a limit that was set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Container, PodSpec, ResourceRequirements, Toleration
from fluxqueue.api.requests import pod_level_requests

__all__ = [
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "RuntimeClass",
    "RuntimeOverhead",
    "RuntimeScheduling",
    "with_defaults",
]

Amounts = dict[str, str | int | float]


class LimitRangeItem(PartialObject, frozen=True):
    """Defaults for one type, such as ``Container``.
    The API server has filled ``default_request`` from ``default`` and ``max``.
    """

    type: str = ""
    default_request: Amounts | None = None


class LimitRangeSpec(PartialObject, frozen=True):
    """The spec of a LimitRange."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(PartialObject, frozen=True):
    """A LimitRange, with the fields that change requests."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class RuntimeOverhead(PartialObject, frozen=True):
    """The resources that the sandbox of a pod itself takes."""

    pod_fixed: Amounts | None = None


class RuntimeScheduling(PartialObject, frozen=True):
    """The nodes on which pods of a RuntimeClass may run."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(PartialObject, frozen=True):
    """A RuntimeClass (node.k8s.io/v1)."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: RuntimeOverhead | None = None
    scheduling: RuntimeScheduling | None = None


def with_defaults(
    spec: PodSpec, ranges: Iterable[LimitRange] = (), runtime: RuntimeClass | None = None
) -> PodSpec:
    """Return the spec that the pods of a template will have, as far as placement depends on it.

    Parameters
    ----------
    spec
        Pod spec of the template.
    ranges
        The LimitRanges of its namespace.
    runtime
        Its RuntimeClass; None if it names none.

    Returns
    -------
    PodSpec
        The same object if there is nothing to add.
    """
    defaults: Amounts = {}
    for item in (item for limit_range in ranges for item in limit_range.spec.limits or ()):
        if item.type == "Container":
            # the first one that sets a resource counts
            defaults = {**(item.default_request or {}), **defaults}
    if defaults:
        spec = _with_requests(spec, defaults)
    return _with_runtime(spec, runtime) if runtime is not None else spec


def _with_requests(spec: PodSpec, defaults: Mapping[str, str | int | float]) -> PodSpec:
    resources = spec.resources
    if resources is not None:
        # This depends on what the containers request themselves, before defaults are added to them.
        resources = ResourceRequirements(
            requests={name: f"{amount:f}" for name, amount in pod_level_requests(spec).items()},
            limits=resources.limits,
        )
    return msgspec.structs.replace(
        spec,
        resources=resources,
        containers=[_filled(container, defaults) for container in spec.containers],
        init_containers=[_filled(container, defaults) for container in spec.init_containers or ()] or None,
    )


def _filled(container: Container, defaults: Mapping[str, str | int | float]) -> Container:
    own = container.resources
    requests = {**defaults, **(own.limits or {}), **(own.requests or {})}
    return msgspec.structs.replace(
        container, resources=ResourceRequirements(requests=requests, limits=own.limits)
    )


def _with_runtime(spec: PodSpec, runtime: RuntimeClass) -> PodSpec:
    overhead = runtime.overhead.pod_fixed if runtime.overhead is not None else None
    scheduling = runtime.scheduling or RuntimeScheduling()
    return msgspec.structs.replace(
        spec,
        overhead=overhead if overhead is not None else spec.overhead,
        node_selector={**(spec.node_selector or {}), **scheduling.node_selector}
        if scheduling.node_selector
        else spec.node_selector,
        tolerations=[*(spec.tolerations or ()), *scheduling.tolerations]
        if scheduling.tolerations
        else spec.tolerations,
    )
