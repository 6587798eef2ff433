"""What the claims of a pod require."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.device_objects import CLASS, DRIVER, a_claim, a_class, a_template, request, resource_claims

from fluxqueue.api.devices import Device, DeviceClass, ResourceClaim, ResourceClaimTemplate
from fluxqueue.api.graphnames import display_name, is_countable, is_device, resource_type
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.queue.cluster.devices import ClusterDevices
from fluxqueue.queue.noderules.device_requests import (
    NO_DEVICE_NEEDS,
    NO_DEVICES,
    DeviceKind,
    DeviceNeeds,
    DeviceQuery,
    device_needs,
    key_in,
    kinds_of,
    plain_kind,
)

LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"
COSTLY = "[1].all(x, x > 0)"
ANY = f"devices/{CLASS}/any"


class Cluster(ClusterDevices):
    """Claims and templates in namespace ns, and the class."""

    def __init__(self, *classes: str) -> None:
        super().__init__(counted=True)
        for name in (CLASS, *classes):
            self.classes.apply(msgspec.convert(a_class(name), DeviceClass))

    def has_template(self, *requests: Any, **devices: Any) -> Cluster:
        self.templates.apply(
            msgspec.convert(a_template("t", *requests, namespace="ns", **devices), ResourceClaimTemplate)
        )
        return self

    def has_claim(self, *requests: Any, **more: Any) -> Cluster:
        self.claims.apply(msgspec.convert(a_claim("c", *requests, namespace="ns", **more), ResourceClaim))
        return self


def pod(template: str = "", claim: str = "") -> PodSpec:
    return msgspec.convert({"resourceClaims": resource_claims(template, claim)}, PodSpec)


def needs(cluster: Cluster, template: str = "t") -> DeviceNeeds:
    return device_needs(pod(template), "ns", cluster)


def test_a_pod_without_claims_and_a_cluster_that_is_not_counted_ask_for_nothing() -> None:
    assert device_needs(PodSpec(), "ns", Cluster()) is NO_DEVICE_NEEDS
    assert device_needs(pod("t"), "ns", NO_DEVICES) is NO_DEVICE_NEEDS


def test_requests_are_counted_by_class_and_selection() -> None:
    assert needs(Cluster().has_template(request(2), request(1))).requests == {ANY: Decimal(3)}
    found = needs(Cluster().has_template(request(1), request(2, LARGE))).requests
    assert found[ANY] == 1
    (selected,) = found.keys() - {ANY}
    assert selected.startswith(f"devices/{CLASS}/")
    assert found[selected] == 2
    assert needs(Cluster().has_template(request(5, LARGE))).requests == {selected: Decimal(5)}, (
        "one name for one selection"
    )


def test_names_of_kinds_are_countable_types_that_people_can_read() -> None:
    (name,) = needs(Cluster().has_template(request(2, COSTLY))).requests
    kind = resource_type(name)
    assert is_device(kind)
    assert is_countable(kind)
    assert display_name(resource_type(ANY)) == f"devices of class {CLASS}"
    assert display_name(kind) == f"devices of class {CLASS} (counted without some of what is asked of them)"
    assert key_in(kind) in kinds_of(Cluster().has_template(request(2, COSTLY)).templates.list()[0].spec.spec)
    assert not is_device("devices:two")


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([request(1, COSTLY)], {}),
        ([request(1, *(f"device.driver == '{'x' * 800}{number}'" for number in range(3)))], {}),
        ([request(1), request(1)], {"constraints": [{"distinctAttribute": f"{DRIVER}/model"}]}),
        (
            [request(1), request(0, allocationMode="All")],
            {"constraints": [{"matchAttribute": f"{DRIVER}/model"}]},
        ),
        (
            [request(1), request(1)],
            {"constraints": [{"matchAttribute": f"{DRIVER}/model"}, {"matchAttribute": f"{DRIVER}/uuid"}]},
        ),
        (
            [{"firstAvailable": [{"name": "a", "deviceClassName": CLASS, "count": 2}]}],
            {"constraints": [{"matchAttribute": f"{DRIVER}/model"}]},
        ),
    ],
)
def test_what_is_not_counted_in_full_is_said_by_the_name(requests: list[Any], devices: Any) -> None:
    assert all(name.endswith("~") for name in needs(Cluster().has_template(*requests, **devices)).requests)


def test_a_class_that_cannot_be_evaluated_makes_its_devices_rough() -> None:
    cluster = Cluster().has_template(request())
    cluster.classes.apply(msgspec.convert(a_class(CLASS, COSTLY, version=2), DeviceClass))
    assert needs(cluster).requests == {f"{ANY}~": Decimal(1)}
    assert key_in(resource_type(f"{ANY}~")) == key_in(resource_type(ANY))


def test_alternatives_are_one_set_and_all_devices_of_a_node_are_one_unit() -> None:
    options = [
        {"name": "a", "deviceClassName": CLASS, "count": 4},
        {"name": "b", "deviceClassName": CLASS, "count": 2},
    ]
    ((name, count),) = needs(Cluster().has_template({"firstAvailable": options})).requests.items()
    assert (display_name(resource_type(name)), int(count)) == (f"sets of devices of class {CLASS}", 1)
    assert [*needs(Cluster().has_template(request(0, allocationMode="All"))).requests.values()] == [1]


def test_devices_with_a_common_attribute_are_one_set() -> None:
    constraint = {"requests": ["devices-0", "devices-1"], "matchAttribute": f"{DRIVER}/model"}
    cluster = Cluster().has_template(request(2), request(1, LARGE), request(3), constraints=[constraint])
    (kind,) = (each for each in kinds_of(cluster.templates.list()[0].spec.spec).values() if each.sets)
    assert (kind.sets, kind.match, len(kind.queries), kind.rough) == (
        (((0, 2), (1, 1)),),
        f"{DRIVER}/model",
        2,
        False,
    )
    assert needs(cluster).requests == {kind.resource(): 1, ANY: 3}


def test_equal_requests_of_a_set_are_counted_together() -> None:
    cluster = Cluster().has_template(
        request(1), request(2), constraints=[{"matchAttribute": f"{DRIVER}/model"}]
    )
    (kind,) = kinds_of(cluster.templates.list()[0].spec.spec).values()
    assert kind.sets == (((0, 3),),)


def test_a_share_of_a_capacity_is_a_selection_of_its_own() -> None:
    (name,) = needs(Cluster().has_template(request(1, capacity={"requests": {"memory": "1Gi"}}))).requests
    assert name != ANY
    assert not name.endswith("~")


def test_administrative_access_takes_nothing() -> None:
    assert needs(Cluster().has_template(request(3, adminAccess=True))).requests == {}


def test_a_claim_that_has_its_devices_binds_to_their_node_and_takes_no_more() -> None:
    found = device_needs(
        pod(claim="c"), "ns", Cluster().has_claim(request(2), has=[("n1", "gpu-0"), ("n1", "gpu-1")])
    )
    assert (found.requests, found.rules, found.shared) == ({}, ({"hostlist": ["n1"]},), {})
    found = device_needs(pod(claim="c"), "ns", Cluster().has_claim(request(2)))
    assert (found.requests, found.rules, found.shared) == ({ANY: Decimal(2)}, (), {"c": {ANY: 2}})


@pytest.mark.parametrize(
    ("spec", "cluster", "message"),
    [
        (pod("t"), Cluster(), "ResourceClaimTemplate ns/t does not exist"),
        (pod(claim="c"), Cluster(), "ResourceClaim ns/c does not exist"),
        (pod("t"), Cluster().has_template(request(device_class="none")), "DeviceClass none does not exist"),
        (
            pod("t"),
            Cluster().has_template(request(1, *("x" * 1_000 + str(n) for n in range(5)))),
            "5005 characters, the most is 4096",
        ),
        (pod("t"), Cluster().has_template(request(2_000)), "more than 1024 devices"),
        (
            pod("t"),
            Cluster().has_template(*(request(1, f"device.driver == '{n}'") for n in range(17))),
            "17 kinds of devices, the most is 16",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_named(spec: PodSpec, cluster: Cluster, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        device_needs(spec, "ns", cluster)


@pytest.mark.parametrize(
    ("tolerations", "selects"),
    [
        ((), False),
        ((("broken", "Exists", "", ""),), True),
        ((("broken", "Equal", "yes", "NoSchedule"),), True),
        ((("broken", "Equal", "no", ""),), False),
        ((("", "Exists", "", ""),), True),
        ((("broken", "Exists", "", "NoExecute"),), False),
    ],
)
def test_devices_with_taints_are_for_who_tolerates_them(
    tolerations: tuple[tuple[str, str, str, str], ...], selects: bool
) -> None:
    taints = [{"key": "broken", "value": "yes", "effect": "NoSchedule"}, {"key": "noted", "effect": "None"}]
    tainted = msgspec.convert({"name": "gpu-0", "taints": taints}, Device)
    of_class = msgspec.convert(a_class(), DeviceClass)
    assert DeviceQuery(CLASS, (), tolerations).selects(DRIVER, tainted, of_class) is selects


def test_a_query_without_its_class_selects_nothing() -> None:
    plain = plain_kind((CLASS, "any"))
    assert plain == DeviceKind((DeviceQuery(CLASS),))
    assert plain_kind((CLASS, "abc")) is None
    device = msgspec.convert({"name": "gpu-0"}, Device)
    assert DeviceQuery(CLASS).selects(DRIVER, device, msgspec.convert(a_class(), DeviceClass))
    assert not DeviceQuery("none").selects(DRIVER, device, None)


def test_claims_of_a_pod_group_are_shared_and_say_where_their_devices_are() -> None:
    spec = msgspec.convert({"resourceClaims": resource_claims("t")}, PodSpec)
    named = (spec.resource_claims or [])[0]
    cluster = Cluster().has_template(request(2))
    found = device_needs(spec, "ns", cluster, {named: ""})
    assert (found.requests, list(found.shared.values())) == ({ANY: Decimal(2)}, [{ANY: 2}])
    assert found.without(found.shared) == {}
    made = cluster.has_claim(request(2))
    assert list(device_needs(spec, "ns", made, {named: "c"}).shared) == ["c"], (
        "the claim that was made from the template"
    )
    has = Cluster().has_template(request(2)).has_claim(request(2), has=[("n1", "gpu-0"), ("n1", "gpu-1")])
    assert device_needs(spec, "ns", has, {named: "c"}) == DeviceNeeds({}, ({"hostlist": ["n1"]},))
