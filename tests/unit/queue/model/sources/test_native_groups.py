"""Kubernetes' own gangs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import PodResourceClaim
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS, NATIVE_WORKLOADS, claims_of_group


def member(name: str) -> PodBuilder:
    return pod_builder(name).with_("spec.schedulingGroup", {"podGroupName": "train"})


def older(name: str, **ref: str) -> PodBuilder:
    return pod_builder(name).with_("spec.workloadRef", {"name": "train", "podGroup": "workers", **ref})


def workload(policy: Any) -> Any:
    return read_object(NATIVE_WORKLOADS, {"podGroups": [{"name": "workers", "policy": policy}]}, name="train")


def test_a_pod_names_its_pod_group_in_its_spec() -> None:
    assert group_of(pods_of(member("a"))[0]) == GroupKey("default", "train", "PodGroup", "kubernetes")


def test_min_count_pods_start_together() -> None:
    group = read_object(NATIVE_POD_GROUPS, {"schedulingPolicy": {"gang": {"minCount": 2}}})
    part, whole = (gather(NATIVE_POD_GROUPS, pods_of(*map(member, names)), group) for names in ("a", "abc"))
    assert part is not None
    assert whole is not None
    assert (part.reason, whole.reason, whole.size, len(whole.excess)) == (
        Reason.WAITING_FOR_GROUP,
        Reason.NONE,
        2,
        1,
    )


def test_the_basic_policy_is_no_gang() -> None:
    group = read_object(NATIVE_POD_GROUPS, {"schedulingPolicy": {"basic": {}}})
    assert gather(NATIVE_POD_GROUPS, pods_of(member("a")), group) is None


def test_a_gang_without_a_number_is_one_sentence() -> None:
    group = read_object(NATIVE_POD_GROUPS, {"schedulingPolicy": {"gang": {}}})
    with pytest.raises(InvalidGang, match=r"spec\.schedulingPolicy\.gang\.minCount is missing"):
        NATIVE_POD_GROUPS.read((), group)


def test_in_1_35_a_pod_names_a_workload_and_a_replica_of_one_of_its_groups() -> None:
    first, second = pods_of(older("a"), older("b", podGroupReplicaKey="7"))
    assert group_of(first) == GroupKey("default", "train:workers", "Workload", "kubernetes-1.35")
    assert group_of(second) == GroupKey("default", "train:workers:7", "Workload", "kubernetes-1.35")
    assert NATIVE_WORKLOADS.object_name(second, "train:workers:7") == "train"
    found = gather(NATIVE_WORKLOADS, [first], workload({"gang": {"minCount": 2}}))
    assert found is not None
    assert found.reason is Reason.WAITING_FOR_GROUP
    assert gather(NATIVE_WORKLOADS, [first], workload({"basic": {}})) is None


def test_in_1_35_no_two_groups_of_workloads_are_one_gang() -> None:
    refs = [
        {"name": "a", "podGroup": "b-c"},
        {"name": "a-b", "podGroup": "c"},
        {"name": "a", "podGroup": "b", "podGroupReplicaKey": "c"},
        {"name": "a.b", "podGroup": "c"},
        {"name": "a", "podGroup": "b.c"},
    ]
    pods = pods_of(*(pod_builder("p").with_("spec.workloadRef", ref) for ref in refs))
    assert len({group_of(pod) for pod in pods}) == len(refs)


def test_a_pod_group_that_its_workload_does_not_have_is_one_sentence() -> None:
    with pytest.raises(InvalidGang, match="Workload train has no pod group strange"):
        NATIVE_WORKLOADS.read(pods_of(older("a", podGroup="strange")), workload({"basic": {}}))


def test_the_topology_of_a_group_is_its_domain() -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
    }
    found = gather(NATIVE_POD_GROUPS, pods_of(member("a"), member("b")), read_object(NATIVE_POD_GROUPS, spec))
    assert found is not None
    assert (found.size, found.domain) == (2, "example.com/rack")


def test_the_first_pod_of_a_basic_group_decides_about_its_domain() -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "zone"}]}}
    found = gather(NATIVE_POD_GROUPS, pods_of(member("a"), member("b")), read_object(NATIVE_POD_GROUPS, spec))
    assert found is not None
    assert (found.size, len(found.excess), found.domain) == (1, 1, "zone")


def test_several_topologies_are_one_sentence() -> None:
    spec = {
        "schedulingPolicy": {"basic": {}},
        "schedulingConstraints": {"topology": [{"key": "zone"}, {"key": "rack"}]},
    }
    with pytest.raises(InvalidGang, match=r"spec\.schedulingConstraints\.topology has 2 constraints"):
        NATIVE_POD_GROUPS.read((), read_object(NATIVE_POD_GROUPS, spec))


def test_the_claims_of_a_group_are_known_by_their_name_and_source_and_by_what_was_made_of_them() -> None:
    claims = [{"name": "one", "resourceClaimName": "mine"}, {"name": "two", "resourceClaimTemplateName": "t"}]
    group = read_object(NATIVE_POD_GROUPS, {"schedulingPolicy": {"basic": {}}, "resourceClaims": claims})
    mine, made = msgspec.convert(claims, list[PodResourceClaim])
    assert claims_of_group(group) == {mine: "", made: ""}
    status = {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "group-two-x"}]}
    known = msgspec.convert({"spec": {"resourceClaims": claims}, "status": status}, type(group))
    assert claims_of_group(known) == {mine: "", made: "group-two-x"}


def test_a_part_of_a_composite_group_is_one_sentence() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "both"}
    with pytest.raises(
        InvalidGang, match=r"spec\.parentCompositePodGroupName: CompositePodGroup both is not read"
    ):
        NATIVE_POD_GROUPS.read((), read_object(NATIVE_POD_GROUPS, spec))
