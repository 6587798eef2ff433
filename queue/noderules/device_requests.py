"""What a pod claims of devices, as resources of the graph (dynamic resource allocation,
``resource.k8s.io/v1``).

A claim requests numbers of devices of a class, among which expressions select. All requests for the same
selection are of one kind, and a kind is a resource: a node has as many of it as it has devices that are
selected, and a pod takes its count. So gangs, reservations and backfill handle devices without rules of their
own. Which devices they are is decided by the scheduler of the cluster, on the chosen node.

Devices that a claim gets together are one unit of a kind: those of requests with a common attribute
(``matchAttribute``), or the first alternative that is there (`fluxqueue.queue.noderules.device_sets`). A
request may be for a share of a device's capacity.

Where the queue cannot check all that a claim asks, the name of the resource ends with a tilde, and messages
say it: an expression that is not evaluated (`fluxqueue.queue.noderules.device_selectors`), and constraints
between devices of other forms.
Such work may get a node on which its pods cannot be bound. It is then matched again elsewhere, as after any
failed start.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Protocol

import orjson

from fluxqueue.api.devices import (
    ALL_DEVICES,
    ClaimSpec,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    ExactRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from fluxqueue.api.graphnames import ROUGH, SET, device_resource
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.queue.model.constraints import node_terms
from fluxqueue.queue.model.sources.native_groups import NO_GROUP_CLAIMS, GroupClaims
from fluxqueue.queue.noderules.device_selectors import InexactSelector, selector_of
from fluxqueue.queue.noderules.device_shares import consumed

__all__ = [
    "NO_DEVICES",
    "NO_DEVICE_NEEDS",
    "DeviceKind",
    "DeviceNeeds",
    "DeviceQuery",
    "Devices",
    "KindKey",
    "device_needs",
    "key_in",
    "kinds_of",
    "plain_kind",
]

MOST_KINDS: Final = 16
"""Different requests for devices that one pod may have."""
_MOST_DEVICES: Final = 1_024
_LONGEST_EVALUATED: Final = 2_048
"""Characters of the expressions of one request; longer ones are not evaluated."""
_LONGEST: Final = 4_096
"""Characters of all expressions of one claim."""
_ANY: Final = "any"
_TAG: Final = 10
_HARD: Final = ("NoSchedule", "NoExecute")

KindKey = tuple[str, str]
"""Class and tag of a kind of devices."""


@dataclass(frozen=True, slots=True)
class DeviceQuery:
    """Devices of a class for which all expressions are true, and whose taints are tolerated.

    Attributes
    ----------
    tolerations
        Key, operator, value and effect of each.
    capacity
        Name and quantity of each capacity of which a share is asked for.
    """

    device_class: str
    expressions: tuple[str, ...] = ()
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()

    def selects(self, driver: str, device: Device, of_class: DeviceClass | None) -> bool:
        """True if a device may be allocated; expressions that are not evaluated count as true."""
        if of_class is None or not all(
            self._tolerates(taint) for taint in device.taints or () if taint.effect in _HARD
        ):
            return False
        if self.capacity and consumed(device, dict(self.capacity)) is None:
            return False
        selectors = map(selector_of, (*of_class.expressions, *self.evaluated))
        return all(isinstance(each, InexactSelector) or each.selects(driver, device) for each in selectors)

    @property
    def length(self) -> int:
        """Number of characters of its expressions."""
        return sum(map(len, self.expressions))

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Its expressions, if they are not too long together."""
        return self.expressions if self.length <= _LONGEST_EVALUATED else ()

    @property
    def rough(self) -> bool:
        """True if not all of its expressions are evaluated."""
        return len(self.evaluated) < len(self.expressions) or _inexact(self.evaluated)

    def _tolerates(self, taint: DeviceTaint) -> bool:
        for key, operator, value, effect in self.tolerations:
            if (
                effect in ("", taint.effect)
                and key in ("", taint.key)
                and (operator == "Exists" or (bool(key) and value == taint.value))
            ):
                return True
        return False


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A selection of devices.

    Attributes
    ----------
    queries
        One of them selects a device; more than one only for alternatives and sets.
    every
        True if all devices of a node that are selected are wanted, so that a node has one unit of this kind.
    rough
        True if more is asked of the devices than expressions say, so that the queue does not check it.
    sets
        What one unit is, if it is not a single device: alternatives, each with the numbers of devices of some
        queries.
    match
        The attribute that is one for all devices of a set; empty: none.
    """

    queries: tuple[DeviceQuery, ...]
    every: bool = False
    rough: bool = False
    sets: tuple[tuple[tuple[int, int], ...], ...] = ()
    match: str = ""

    @property
    def tag(self) -> str:
        """What tells it apart from other selections of devices of its class."""
        query = self.queries[0]
        if self == DeviceKind((DeviceQuery(query.device_class),), rough=self.rough):
            return _ANY
        queries = [
            {name: value for name, value in asdict(each).items() if value or name != "capacity"}
            for each in self.queries
        ]
        text = orjson.dumps([queries, self.every, *((self.sets, self.match) if self.sets else ())])
        return hashlib.sha256(text).hexdigest()[:_TAG] + (SET if self.sets else "")

    @property
    def key(self) -> KindKey:
        """Class and tag."""
        return self.queries[0].device_class, self.tag

    def resource(self, *, rough: bool = False) -> str:
        """Return its resource name; ``rough`` if what its classes select is not known either."""
        return device_resource(
            self.queries[0].device_class, self.tag + (ROUGH if rough or self.rough else "")
        )


def key_in(kind: str) -> KindKey:
    """Return class and tag in the vertex type of a kind of devices."""
    _, device_class, tag = kind.split(":")
    return device_class, tag.removesuffix(ROUGH)


def plain_kind(key: KindKey) -> DeviceKind | None:
    """Return the kind of a class without any selection; None if the tag says that there is one."""
    return DeviceKind((DeviceQuery(key[0]),)) if key[1] == _ANY else None


class Devices(Protocol):
    """The devices of a cluster, and the claims for them."""

    @property
    def counted(self) -> bool:
        """True if claims are read; otherwise they are left to the scheduler of the cluster alone."""

    def device_class(self, name: str) -> DeviceClass | None:
        """Return a class by its name."""

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return a claim by its name."""

    def template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        """Return a template of claims by its name."""

    def of_one_node(self, kinds: Iterable[str]) -> bool:
        """True if no device of these kinds (vertex types) is reached from several nodes."""


class _NoDevices:
    """A cluster whose devices are not counted."""

    counted = False

    def device_class(self, _name: str) -> DeviceClass | None:
        return None

    def claim(self, _namespace: str, _name: str) -> ResourceClaim | None:
        return None

    def template(self, _namespace: str, _name: str) -> ResourceClaimTemplate | None:
        return None

    def of_one_node(self, _kinds: Iterable[str]) -> bool:
        return True


NO_DEVICES: Final[Devices] = _NoDevices()


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """What the claims of one pod require.

    Attributes
    ----------
    requests
        Number of devices of each kind, by resource name.
    rules
        RFC 31 constraints on its node, all of which must hold: where the devices of its claims are that are
        allocated already.
    shared
        What each claim asks for that is not allocated yet and that other pods may use too, by its name. It is
        part of ``requests``.
    """

    requests: Mapping[str, Decimal] = field(default_factory=dict)
    rules: tuple[Mapping[str, Any], ...] = ()
    shared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def without(self, claims: Collection[str]) -> Mapping[str, Decimal]:
        """Return what it requests beside these claims."""
        left = Counter({name: int(count) for name, count in self.requests.items()})
        for claim in claims:
            left.subtract(self.shared.get(claim, {}))
        return {name: Decimal(count) for name, count in left.items() if count > 0}


NO_DEVICE_NEEDS: Final = DeviceNeeds()


def device_needs(
    spec: PodSpec, namespace: str, devices: Devices, of_group: GroupClaims = NO_GROUP_CLAIMS
) -> DeviceNeeds:
    """Return what the claims of a pod require.

    Raises
    ------
    InvalidRequest
        Something that a claim needs does not exist, or it asks for more than a pod may.
    InexpressibleConstraint
        It is not known from which nodes the devices of a claim can be reached.
    """
    if not spec.resource_claims or not devices.counted:
        return NO_DEVICE_NEEDS
    requests: Counter[str] = Counter()
    rules: list[Mapping[str, Any]] = []
    shared: dict[str, Mapping[str, int]] = {}
    for each in spec.resource_claims:
        if name := each.resource_claim_name or of_group.get(each, ""):
            claim = devices.claim(namespace, name)
            if claim is None:
                raise _missing("ResourceClaim", f"{namespace}/{name}")
            if claim.status.allocation is not None:
                selector = claim.status.allocation.node_selector
                rules += [node_terms(selector.get("nodeSelectorTerms") or ())] if selector else []
                continue
            if name not in shared:
                requests.update(counts := _counts(claim.spec, devices))
                shared[name] = counts
        elif each.resource_claim_template_name:
            template = devices.template(namespace, each.resource_claim_template_name)
            if template is None:
                raise _missing("ResourceClaimTemplate", f"{namespace}/{each.resource_claim_template_name}")
            requests.update(counts := _counts(template.spec.spec, devices))
            if each in of_group:
                shared[f"of PodGroup: {each.name}"] = counts
    _check(requests)
    return DeviceNeeds(
        {name: Decimal(count) for name, count in requests.items() if count}, tuple(rules), shared
    )


def _missing(kind: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"spec.resourceClaims: {kind} {name} does not exist: create it and the work can start"
    )


def _check(requests: Mapping[str, int]) -> None:
    if len(requests) > MOST_KINDS:
        raise InvalidRequest(
            f"spec.resourceClaims: a pod asks for {len(requests)} kinds of devices, "
            f"the most is {MOST_KINDS}: use fewer"
        )
    if any(count > _MOST_DEVICES for count in requests.values()):
        raise InvalidRequest(
            f"spec.resourceClaims: a pod asks for more than {_MOST_DEVICES} devices of one kind: "
            "ask for fewer"
        )


def _counts(spec: ClaimSpec, devices: Devices) -> dict[str, int]:
    """Return the number of devices of each kind that a claim asks for."""
    counts: Counter[str] = Counter()
    kinds = [*_requests_of(spec)]
    if (length := sum(query.length for kind, _ in kinds for query in kind.queries)) > _LONGEST:
        raise InvalidRequest(
            f"spec.resourceClaims: the selectors of a claim come to {length} characters, "
            f"the most is {_LONGEST}: shorten them"
        )
    for kind, count in kinds:
        classes = [devices.device_class(query.device_class) for query in kind.queries]
        missing = [
            query.device_class for query, each in zip(kind.queries, classes, strict=True) if each is None
        ]
        if missing and (len(kind.queries) == 1 or kind.match):
            raise _missing("DeviceClass", missing[0])
        rough = any(query.rough for query in kind.queries) or any(
            _inexact(each.expressions) for each in classes if each is not None
        )
        counts[kind.resource(rough=rough)] += count
    return counts


def kinds_of(spec: ClaimSpec) -> dict[KindKey, DeviceKind]:
    """Return the kinds of devices that a claim asks for."""
    return {kind.key: kind for kind, _ in _requests_of(spec)}


_kind: Final = lru_cache(maxsize=4_096)(DeviceKind)


def _requests_of(spec: ClaimSpec) -> Iterator[tuple[DeviceKind, int]]:
    """Yield kind and number of devices of each request;
    without those that take no device away from others.
    """
    constraints, requests = spec.devices.constraints or [], spec.devices.requests or []
    matched = _matched(requests, constraints[0]) if len(constraints) == 1 else []
    if matched:
        yield _matched_kind(matched, constraints[0].match_attribute or ""), 1
    between = bool(constraints) and not matched
    for request in requests:
        exact, options = request.exactly, request.first_available
        if request in matched:
            continue
        if exact is not None and not exact.admin_access:
            every = exact.allocation_mode == ALL_DEVICES
            yield _kind((_query(exact),), every, between), 1 if every else max(exact.count, 1)
        elif options and not between and not any(each.allocation_mode == ALL_DEVICES for each in options):
            sets = tuple(((at, max(each.count, 1)),) for at, each in enumerate(options))
            yield _kind(tuple(map(_query, options)), sets=sets), 1
        elif options:
            least = min(1 if each.allocation_mode == ALL_DEVICES else max(each.count, 1) for each in options)
            yield _kind(tuple(map(_query, options)), False, True), least


def _matched(requests: Sequence[DeviceRequest], constraint: DeviceConstraint) -> list[DeviceRequest]:
    """Return the requests whose devices must have one attribute in common;
    none if that is not all that is asked of them.
    """
    names = {request.name for request in requests}
    wanted = set(constraint.requests or names)
    matched = [request for request in requests if request.name in wanted]
    plain = all(
        request.exactly is not None
        and not request.exactly.admin_access
        and request.exactly.allocation_mode != ALL_DEVICES
        for request in matched
    )
    return matched if constraint.match_attribute and wanted <= names and plain else []


def _matched_kind(requests: Iterable[DeviceRequest], attribute: str) -> DeviceKind:
    counts: Counter[DeviceQuery] = Counter()
    for request in requests:
        if request.exactly is not None:
            counts[_query(request.exactly)] += max(request.exactly.count, 1)
    parts = tuple((at, count) for at, count in enumerate(counts.values()))
    return _kind(tuple(counts), sets=(parts,), match=attribute)


def _inexact(expressions: Iterable[str]) -> bool:
    return any(isinstance(selector_of(text), InexactSelector) for text in expressions)


def _query(request: ExactRequest) -> DeviceQuery:
    return DeviceQuery(
        request.device_class_name,
        tuple(sorted(selector.cel.expression for selector in request.selectors or ())),
        tuple(sorted(_toleration(each) for each in request.tolerations or ())),
        tuple(sorted((name, str(amount)) for name, amount in _capacity(request).items())),
    )


def _capacity(request: ExactRequest) -> Mapping[str, str | int | float]:
    return (request.capacity.requests or {}) if request.capacity is not None else {}


def _toleration(each: DeviceToleration) -> tuple[str, str, str, str]:
    return each.key, each.operator, each.value, each.effect
