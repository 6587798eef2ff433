"""Devices that drivers offer and pods claim: the fields of ``resource.k8s.io/v1`` that are read (see
`fluxqueue.api.metadata`).

A driver publishes the devices of a node as ResourceSlices (dynamic resource allocation, KEP-4381). A
ResourceClaim requests devices of a DeviceClass, and CEL expressions select among them. The scheduler of the
cluster allocates them when it binds a pod that uses the claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any, ClassVar, Final

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = [
    "ALL_DEVICES",
    "AllocationResult",
    "CapacityPolicy",
    "CapacityRange",
    "CapacityRequest",
    "ClaimSpec",
    "ClaimStatus",
    "ClaimTemplateSpec",
    "ConsumerReference",
    "Counters",
    "Device",
    "DeviceAllocation",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClass",
    "DeviceClassSpec",
    "DeviceConstraint",
    "DeviceRequest",
    "DeviceSelector",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceToleration",
    "ExactRequest",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "ResourceSliceSpec",
    "SlicePool",
]

ALL_DEVICES: Final = "All"
"""Allocation mode of a request for every device of a node that matches."""


class CELSelector(PartialObject, frozen=True):
    """An expression that is true for the devices that may be allocated."""

    expression: str = ""


class DeviceSelector(PartialObject, frozen=True):
    """A criterion of a device."""

    cel: CELSelector = CELSelector()


class DeviceToleration(PartialObject, frozen=True):
    """A toleration: devices with a matching taint may be allocated."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class DeviceTaint(PartialObject, frozen=True):
    """A taint of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class CapacityRange(PartialObject, frozen=True):
    """The amounts that an allocation may have: from a minimum in steps up to a maximum."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityPolicy(PartialObject, frozen=True):
    """How much of a capacity an allocation has: one of some amounts or of a range,
    and what it has that asks for nothing.
    """

    default: str | int | float | None = None
    valid_values: list[str | int | float] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(PartialObject, frozen=True):
    """An amount that a device has, and how it is shared."""

    value: str | int | float = ""
    request_policy: CapacityPolicy | None = None


class Counters(PartialObject, frozen=True):
    """Amounts that devices share: a set of them (``name``), or what a device takes of one
    (``counter_set``).
    """

    name: str = ""
    counter_set: str = ""
    counters: dict[str, DeviceCapacity] | None = None


class Device(PartialObject, frozen=True):
    """A device. Values of attributes stay decoded JSON: each has one key, which is its type.
    It may be allocated several times.
    """

    name: str = ""
    attributes: dict[str, dict[str, Any]] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    taints: list[DeviceTaint] | None = None
    consumes_counters: list[Counters] | None = None
    node_name: str | None = None
    allow_multiple_allocations: bool = False


class SlicePool(PartialObject, frozen=True):
    """The pool of a slice.
    Slices of older generations are outdated; a pool with fewer slices than it should have is incomplete.
    """

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(PartialObject, frozen=True):
    """Some devices of one driver."""

    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str | None = None
    devices: list[Device] | None = None
    shared_counters: list[Counters] | None = None


class ResourceSlice(PartialObject, frozen=True):
    """A ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(PartialObject, frozen=True):
    """Which devices a rule taints: those that have all that is set; with nothing set, all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(PartialObject, frozen=True):
    """A taint, and the devices that have it; without a selector none has it."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(PartialObject, frozen=True):
    """A DeviceTaintRule: an administrator, or a controller, taints devices that a driver publishes
    (KEP-5055).
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()

    def taints(self, driver: str, pool: str, device: str) -> bool:
        """True if a device has the taint."""
        selector = self.spec.device_selector
        if selector is None:
            return False
        wanted = ((selector.driver, driver), (selector.pool, pool), (selector.device, device))
        return all(name in (None, own) for name, own in wanted)


class DeviceClassSpec(PartialObject, frozen=True):
    """The devices of a class: those for which all selectors are true.
    Pods may request them by the name of a resource.
    """

    selectors: list[DeviceSelector] | None = None
    extended_resource_name: str | None = None


class DeviceClass(PartialObject, frozen=True):
    """A DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def expressions(self) -> tuple[str, ...]:
        """Its CEL expressions."""
        return tuple(each.cel.expression for each in self.spec.selectors or ())


class CapacityRequest(PartialObject, frozen=True):
    """What a request asks of the capacities of each of its devices."""

    requests: dict[str, str | int | float] | None = None


class DeviceConstraint(PartialObject, frozen=True):
    """What the devices of some requests (all, if none is named) have in common, or have each of its own."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ExactRequest(PartialObject, frozen=True):
    """A request for devices of one class. One with ``admin_access`` takes none away from others."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequest | None = None


class DeviceRequest(PartialObject, frozen=True):
    """A request of a claim: an exact one, or alternatives of which the first that can be met is taken."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] | None = None


class DeviceClaim(PartialObject, frozen=True):
    """The requests of a claim, and constraints between their devices."""

    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None


class ClaimSpec(PartialObject, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


class DeviceAllocation(PartialObject, frozen=True):
    """A device that a claim has, or the share of it."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    consumed_capacity: dict[str, str | int | float] | None = None

    @property
    def amounts(self) -> dict[str, Decimal]:
        """What it has of the capacities of a device that is shared; what cannot be read is left out."""
        found: dict[str, Decimal] = {}
        for name, amount in (self.consumed_capacity or {}).items():
            with suppress(InvalidQuantity):
                found[name] = parse_quantity(amount)
        return found


class AllocatedDevices(PartialObject, frozen=True):
    """The devices that a claim has."""

    results: list[DeviceAllocation] | None = None


class AllocationResult(PartialObject, frozen=True):
    """The devices of a claim, and a node selector (decoded JSON) of the nodes that reach them."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: dict[str, Any] | None = None


class ConsumerReference(PartialObject, frozen=True):
    """Who may use a claim: a pod."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(PartialObject, frozen=True):
    """What a claim has, and who uses it."""

    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] | None = None


class ResourceClaim(PartialObject, frozen=True):
    """A ResourceClaim."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    most_bytes: ClassVar[int] = 131_072

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def allocated(self) -> tuple[DeviceAllocation, ...]:
        """The devices that it has and nobody else can get; none if it is not allocated."""
        allocation = self.status.allocation
        results = (allocation.devices.results or ()) if allocation is not None else ()
        return tuple(result for result in results if not result.admin_access)

    def pools(self) -> Iterator[tuple[str, str]]:
        """Yield driver and pool of the devices that it has, each once."""
        yield from dict.fromkeys((each.driver, each.pool) for each in self.allocated)


class ClaimTemplateSpec(PartialObject, frozen=True):
    """What the claims of a template are like."""

    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(PartialObject, frozen=True):
    """A ResourceClaimTemplate: each pod that names it gets a claim of its own."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    most_bytes: ClassVar[int] = 131_072

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()
