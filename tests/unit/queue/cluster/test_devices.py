"""How many devices nodes have, and how many of them are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from support.builders import make_node
from support.device_objects import (
    CLASS,
    DRIVER,
    a_claim,
    a_class,
    a_slice,
    a_template,
    request,
    resource_claims,
)

from fluxqueue.api.devices import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from fluxqueue.api.graphnames import resource_type
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.cluster.devices import ANY_CLAIM, ClusterDevices, sources_used
from fluxqueue.queue.noderules.device_requests import kinds_of

ANY = f"devices:{CLASS}:any"
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


def nobody(_uid: str, _node: str) -> Mapping[str, int]:
    return {}


class Cluster(ClusterDevices):
    """The devices of a cluster, and what it told its listener."""

    def __init__(self, find_node: Callable[[str], Node | None] = lambda _name: None) -> None:
        super().__init__(counted=True, find_node=find_node)
        self.classes.apply(msgspec.convert(a_class(), DeviceClass))
        self.told: list[frozenset[str] | None] = []
        self.subscribe(self.told.append)

    def has(self, node: str, *models: str, **more: Any) -> Cluster:
        self.slices.apply(msgspec.convert(a_slice(node, models, **more), ResourceSlice))
        return self

    def claims_of(
        self, name: str, *has: tuple[str, str], pod: str = "", version: int = 1, requests: Any = ()
    ) -> Cluster:
        self.claims.apply(
            msgspec.convert(
                a_claim(name, *requests, namespace="ns", has=has, pod=pod, version=version), ResourceClaim
            )
        )
        return self

    def selection(self, *requests: Any) -> str:
        """Return the type of the only kind that a template asks for."""
        template = msgspec.convert(a_template("t", *requests, namespace="ns"), ResourceClaimTemplate)
        self.templates.apply(template)
        (kind,) = kinds_of(template.spec.spec).values()
        return resource_type(kind.resource())


def test_a_node_has_the_devices_of_its_class_and_those_that_are_selected() -> None:
    cluster = Cluster().has("a", "small", "large", "large").has("b", "small")
    large = cluster.selection(request(1, LARGE))
    assert cluster.capacity("a", [ANY, large]) == {ANY: 3, large: 2}
    assert cluster.capacity("b", [ANY, large]) == {ANY: 1, large: 0}
    assert cluster.capacity("c", [ANY]) == {ANY: 0}
    assert cluster.capacity("a", ["devices:none:any", f"devices:{CLASS}:0123456789"]) == {
        "devices:none:any": 0,
        f"devices:{CLASS}:0123456789": 0,
    }


def test_a_kind_that_was_asked_for_is_known_after_its_template_is_gone() -> None:
    cluster = Cluster().has("a", "small", "large")
    large = cluster.selection(request(1, LARGE))
    assert cluster.capacity("a", [large]) == {large: 1}
    cluster.templates.replace([])
    cluster.has("a", "large", "large", version=2)
    assert cluster.capacity("a", [large]) == {large: 2}


def test_a_running_claim_tells_what_its_kind_is() -> None:
    cluster = Cluster().has("a", "small", "large").claims_of("c", requests=[request(1, LARGE)])
    (key,) = kinds_of(cluster.claims.list()[0].spec)
    assert cluster.capacity("a", [f"devices:{key[0]}:{key[1]}"]) == {f"devices:{key[0]}:{key[1]}": 1}


def test_only_the_newest_complete_generation_of_a_pool_counts() -> None:
    cluster = Cluster().has("a", "small", "small", "small")
    cluster.has("a", "small", pool={"generation": 2, "resourceSliceCount": 2})
    assert cluster.capacity("a", [ANY]) == {ANY: 0}, "one of two slices is missing"
    cluster.has("a", "small", version=2, pool={"generation": 2, "resourceSliceCount": 1})
    assert cluster.capacity("a", [ANY]) == {ANY: 1}


def test_devices_that_every_node_reaches_count_on_each() -> None:
    cluster = Cluster().has("a", "small").has("", "small", "small")
    assert (cluster.capacity("a", [ANY]), cluster.capacity("b", [ANY])) == ({ANY: 3}, {ANY: 2})
    cluster.claims_of("c", ("shared", "gpu-0"))
    assert (cluster.taken("a", [ANY], nobody), cluster.taken("b", [ANY], nobody)) == ({ANY: 1}, {ANY: 1})


def test_devices_of_claims_without_a_slot_are_taken() -> None:
    cluster = Cluster().has("a", "small", "large").has("b", "small")
    large = cluster.selection(request(1, LARGE))
    assert cluster.taken("a", [ANY, large], nobody) == {}
    cluster.claims_of("c", ("a", "gpu-1"), pod="p")
    assert cluster.taken("a", [ANY, large], nobody) == {ANY: 1, large: 1}
    assert cluster.taken("b", [ANY, large], nobody) == {}
    cluster.claims_of("c", version=2)
    assert cluster.taken("a", [ANY, large], nobody) == {}


def test_what_a_slot_has_booked_is_taken_from_other_kinds_only() -> None:
    cluster = Cluster().has("a", "small", "large")
    large = cluster.selection(request(1, LARGE))
    cluster.claims_of("c", ("a", "gpu-1"), pod="p")
    booked = {"p": {ANY: 1}}
    assert cluster.taken("a", [ANY, large], lambda uid, _: booked.get(uid, {})) == {large: 1}
    booked["p"] = {large: 1}
    assert cluster.taken("a", [ANY, large], lambda uid, _: booked.get(uid, {})) == {ANY: 1}
    booked["p"] = {ANY: 1, large: 1}
    assert cluster.taken("a", [ANY, large], lambda uid, _: booked.get(uid, {})) == {}


def test_who_wants_all_devices_of_a_node_gets_it_while_none_is_taken() -> None:
    cluster = Cluster().has("a", "small", "large").has("b")
    every = cluster.selection(request(0, allocationMode="All"))
    assert (cluster.capacity("a", [every]), cluster.capacity("b", [every])) == ({every: 1}, {every: 0})
    cluster.claims_of("c", ("a", "gpu-0"))
    assert cluster.taken("a", [every], nobody) == {every: 1}


def test_listeners_are_told_of_nodes_whose_devices_changed() -> None:
    cluster = Cluster().has("a", "small")
    cluster.claims_of("c").claims_of("c", ("a", "gpu-0"), version=2).claims_of("c", ("a", "gpu-0"), version=3)
    assert cluster.told == [frozenset({"a"}), frozenset({"a"})], (
        "not of a claim without devices, and once of one"
    )
    cluster.told.clear()
    cluster.claims.replace([])
    cluster.has("", "small")
    cluster.classes.apply(msgspec.convert(a_class(CLASS, "device.driver == 'other'", version=2), DeviceClass))
    assert cluster.told == [frozenset({"a"}), None, None]
    assert cluster.capacity("a", [ANY]) == {ANY: 0}


@pytest.mark.parametrize(
    ("claims", "sources"),
    [
        ([], []),
        (resource_claims("t"), [("resourceclaimtemplates", "ns", "t"), ANY_CLAIM]),
        (resource_claims(claim="c") * 2, [("resourceclaims", "ns", "c"), ANY_CLAIM]),
        ([{"name": "neither"}], []),
    ],
)
def test_a_pod_uses_the_claims_and_templates_that_it_names(claims: Any, sources: Any) -> None:
    assert sources_used("ns", msgspec.convert({"resourceClaims": claims}, PodSpec)) == sources


def test_parts_of_one_gpu_are_counted_as_far_as_they_fit_together() -> None:
    cluster = Cluster()
    body = a_slice("a", {"whole": "large", "half-0": "small", "half-1": "small"})
    for device in body["spec"]["devices"]:
        taken = {"slices": {"value": "2" if device["name"] == "whole" else "1"}}
        device["consumesCounters"] = [{"counterSet": "gpu", "counters": taken}]
    body["spec"]["sharedCounters"] = [{"name": "gpu", "counters": {"slices": {"value": "2"}}}]
    cluster.slices.apply(msgspec.convert(body, ResourceSlice))
    large = cluster.selection(request(1, LARGE))
    assert cluster.capacity("a", [ANY, large]) == {ANY: 2, large: 1}
    cluster.claims_of("c", ("a", "half-1"), pod="p")
    assert cluster.taken("a", [ANY, large], nobody) == {ANY: 1, large: 1}
    booked = {"p": {ANY: 1}}
    assert cluster.taken("a", [ANY, large], lambda uid, _: booked.get(uid, {})) == {large: 1}


GPU = "example.com:gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io:{CLASS}"


def extended_cluster(reports: str = "") -> Cluster:
    cluster = Cluster(
        lambda name: msgspec.convert(
            make_node(name).allocatable(**({"example.com/gpu": "1"} if name == reports else {})).build(), Node
        )
    )
    cluster.classes.apply(msgspec.convert(a_class(extended="example.com/gpu", version=2), DeviceClass))
    return cluster.has("a", "small", "large").has("b", "small")


def test_a_node_has_as_much_of_a_resource_as_devices_of_the_class_that_stands_for_it() -> None:
    cluster = extended_cluster()
    assert cluster.capacity("a", [GPU, IMPLICIT, ANY]) == {GPU: 2, IMPLICIT: 2, ANY: 2}
    assert cluster.capacity("b", [GPU, "cpu"]) == {GPU: 1}


def test_a_resource_that_a_node_reports_is_not_counted_by_devices() -> None:
    cluster = extended_cluster(reports="a").claims_of("c", ("a", "gpu-0"), pod="p")
    assert cluster.capacity("a", [GPU, ANY]) == {ANY: 2}
    assert cluster.taken("a", [GPU, ANY], nobody) == {ANY: 1}


def test_devices_of_claims_are_taken_from_the_resource_once() -> None:
    cluster = extended_cluster()
    assert cluster.taken("a", [GPU, "cpu"], nobody) == {GPU: 0}, (
        "pods' requests do not count where devices stand for the resource"
    )
    cluster.claims_of("theirs", ("a", "gpu-0"), pod="p")
    assert cluster.taken("a", [GPU, IMPLICIT, ANY], nobody) == {GPU: 1, IMPLICIT: 1, ANY: 1}
    assert cluster.taken("a", [GPU, ANY], lambda uid, _node: {GPU: 1} if uid == "p" else {}) == {
        GPU: 0,
        ANY: 1,
    }


def taint_rule(name: str, selector: Any, effect: str = "NoSchedule", version: int = 1) -> DeviceTaintRule:
    meta = {"name": name, "uid": name, "resourceVersion": str(version)}
    taint = {"key": "example.com/broken", "effect": effect}
    return msgspec.convert(
        {"metadata": meta, "spec": {"deviceSelector": selector, "taint": taint}}, DeviceTaintRule
    )


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        pytest.param({"driver": DRIVER, "pool": "a", "device": "gpu-0"}, 1, id="one device"),
        pytest.param({"pool": "a"}, 0, id="a pool"),
        pytest.param({}, 0, id="an empty selector selects all"),
        pytest.param({"driver": "other"}, 2, id="another driver"),
        pytest.param(None, 2, id="no selector"),
    ],
)
def test_rules_taint_devices(selector: Any, left: int) -> None:
    cluster = Cluster().has("a", "small", "small")
    assert cluster.capacity("a", [ANY]) == {ANY: 2}
    cluster.taint_rules.apply(taint_rule("broken", selector))
    tolerant = cluster.selection(request(1, tolerations=[{"operator": "Exists"}]))
    assert cluster.capacity("a", [ANY, tolerant]) == {ANY: left, tolerant: 2}
    cluster.taint_rules.replace([])
    assert cluster.capacity("a", [ANY]) == {ANY: 2}


def test_a_rule_that_only_says_what_it_would_do_taints_nothing_and_its_status_tells_nobody() -> None:
    cluster = Cluster().has("a", "small")
    cluster.taint_rules.apply(taint_rule("dry", {}, effect="None"))
    assert cluster.capacity("a", [ANY]) == {ANY: 1}
    cluster.told.clear()
    cluster.taint_rules.apply(taint_rule("dry", {}, effect="None", version=2))
    assert cluster.told == []


def test_sets_of_devices_are_counted_within_one_value_and_as_held_by_their_pod() -> None:
    cluster = Cluster().has("a", "small", "small", "small", "large")
    pairs = _pairs(cluster)
    assert cluster.capacity("a", [pairs, ANY]) == {pairs: 1, ANY: 4}
    cluster.claims_of("own", ("a", "gpu-0"), ("a", "gpu-1"), pod="p")
    assert cluster.taken("a", [pairs], lambda _uid, _node: {pairs: 1}) == {}
    assert cluster.taken("a", [pairs], nobody) == {pairs: 1}
    cluster.claims_of("own", ("a", "gpu-3"), pod="p", version=2)
    assert cluster.taken("a", [pairs], nobody) == {}, "the large one belongs to no pair"


def _pairs(cluster: Cluster) -> str:
    constraint = {"matchAttribute": f"{DRIVER}/model"}
    template = msgspec.convert(
        a_template("pairs", request(2), namespace="ns", constraints=[constraint]), ResourceClaimTemplate
    )
    cluster.templates.apply(template)
    (kind,) = kinds_of(template.spec.spec).values()
    return resource_type(kind.resource())


def test_shares_of_a_device_are_counted_by_what_claims_have_of_it() -> None:
    cluster = Cluster()
    body = a_slice("a", ["large"])
    body["spec"]["devices"][0]["allowMultipleAllocations"] = True
    cluster.slices.apply(msgspec.convert(body, ResourceSlice))
    share = cluster.selection(request(1, capacity={"requests": {"memory": "20Gi"}}))
    assert cluster.capacity("a", [share, ANY]) == {share: 4, ANY: 1}
    claim = a_claim("c", namespace="ns", has=[("a", "gpu-0")], pod="p")
    claim["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"memory": "30Gi"}
    cluster.claims.apply(msgspec.convert(claim, ResourceClaim))
    assert cluster.taken("a", [share, ANY], nobody) == {share: 2, ANY: 1}
    assert cluster.taken("a", [share], lambda _uid, _node: {share: 1}) == {share: 1}


def test_a_node_that_has_fewer_devices_than_a_pod_needs_is_named() -> None:
    cluster = extended_cluster()
    cluster.selection(request(1, LARGE))
    claims = msgspec.convert({"resourceClaims": resource_claims("t")}, PodSpec)
    assert cluster.shortage("a", "ns", claims) == ""
    assert cluster.shortage("b", "ns", claims) == f"node b has too few devices of class {CLASS}"
    assert cluster.shortage("b", "elsewhere", claims) == "", "a claim that does not exist is said elsewhere"
    resource = msgspec.convert(
        {"containers": [{"resources": {"requests": {"example.com/gpu": "2"}}}]}, PodSpec
    )
    assert cluster.shortage("a", "ns", resource) == ""
    assert cluster.shortage("b", "ns", resource) == "node b has too few example.com/gpu"
    assert Cluster().shortage("b", "ns", PodSpec()) == ""
