from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import NodeBuilder, make_node, make_pod
from support.queue_builders import a_pod

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.daemonsets import DaemonSetRequests, DaemonSets, daemonset_requests

PREFERENCE = {"labelSelector": {}, "topologyKey": "zone"}


def daemonset(uid: str = "d", namespace: str = "kube-system", cpu: str = "1", **spec: Any) -> DaemonSet:
    pod = make_pod().cpu(cpu).build()["spec"] | spec
    return msgspec.convert(
        {"metadata": {"name": uid, "namespace": namespace, "uid": uid}, "spec": {"template": {"spec": pod}}},
        DaemonSet,
    )


def a_node(builder: NodeBuilder) -> Node:
    return msgspec.convert(builder.build(), Node)


def those(*daemonsets: DaemonSet) -> DaemonSets:
    store: ObjectCache[DaemonSet] = ObjectCache()
    store.replace(daemonsets)
    return DaemonSets(store, ObjectCache())


def coming(builder: NodeBuilder, *daemonsets: DaemonSet, present: tuple[str, ...] = ()) -> int:
    return len(those(*daemonsets).coming(a_node(builder), present))


def bound(name: str, owner: str, namespace: str = "kube-system", created: str = "", cpu: str = "1") -> Pod:
    builder = (
        make_pod(name)
        .namespace(namespace)
        .cpu(cpu)
        .on_node("n1")
        .with_("metadata.creationTimestamp", created)
    )
    return a_pod(
        builder.owned_by("DaemonSet", owner).with_("metadata.ownerReferences", [owner_of(owner)]), uid=name
    )


def owner_of(uid: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": uid, "uid": uid, "controller": True}


def test_a_new_node_reserves_the_requests_of_its_daemonsets_until_their_pods_exist() -> None:
    assert coming(make_node(), daemonset("a"), daemonset("b")) == 2
    assert coming(make_node(), daemonset("a"), daemonset("b"), present=("a",)) == 1


@pytest.mark.parametrize(
    ("node", "spec", "expected"),
    [
        (make_node().label("disk", "ssd"), {"nodeSelector": {"disk": "ssd"}}, 1),
        (make_node(), {"nodeSelector": {"disk": "ssd"}}, 0),
        (make_node().taint("dedicated", "NoSchedule", "gpu"), {}, 0),
        (make_node().taint("dedicated", "NoSchedule", "gpu"), {"tolerations": [{"operator": "Exists"}]}, 1),
        (make_node().cordoned().taint("node.kubernetes.io/unschedulable", "NoSchedule"), {}, 1),
        (
            make_node(),
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [PREFERENCE]}}},
            1,
        ),
    ],
)
def test_a_daemonset_matches_nodes_as_its_controller_says(
    node: NodeBuilder, spec: dict[str, Any], expected: int
) -> None:
    assert coming(node, daemonset(**spec)) == expected


@pytest.mark.parametrize(
    "resources",
    [
        {"cpu": "5"},
        {"nvidia.com/gpu": "1"},
        {"cpu": "19P"},
        {"memory": "100Ei"},
        {"cpu": "1", "memory": "64Gi"},
    ],
    ids=["more cpu", "a gpu it lacks", "beyond all bounds", "far beyond", "more memory"],
)
def test_a_daemonset_whose_pod_can_never_fit_a_node_takes_nothing_of_it(resources: dict[str, str]) -> None:
    containers = [{"name": "c", "resources": {"requests": resources}}]
    assert coming(make_node(cpu="4"), daemonset(containers=containers)) == 0


def claim(cpu: str, standing: list[Pod], *coming: DaemonSet, used: str = "0") -> DaemonSetRequests:
    node = a_node(make_node(cpu=cpu))
    return daemonset_requests(
        node, standing, [each.spec.template.spec for each in coming], {"cpu": Decimal(used)}
    )


def test_what_is_still_to_come_takes_no_more_than_is_free() -> None:
    assert claim("4", [], daemonset(cpu="1"), used="2") == DaemonSetRequests(
        {"cpu": Decimal(1), "pods": Decimal(1)}
    )
    assert claim("4", [], daemonset(cpu="3"), used="2") == DaemonSetRequests(
        {"cpu": Decimal(2), "pods": Decimal(1)}, capped=True
    )
    assert claim("4", [bound("p", "a", cpu="3")], daemonset("b", cpu="3"), used="1").amounts["cpu"] == 3
    assert claim("4", [], daemonset("a", cpu="3"), daemonset("b", cpu="3")).amounts["cpu"] == 4


def test_what_is_bound_takes_what_it_asks_and_not_what_its_template_says() -> None:
    assert claim("4", [bound("p", "a", cpu="2500m")]).amounts == {"cpu": Decimal("2.5"), "pods": Decimal(1)}


def test_what_is_resized_in_place_takes_what_its_node_says_it_has() -> None:
    builder = make_pod("p").cpu("1").on_node("n1").phase("Running")
    status = {
        "name": builder.build()["spec"]["containers"][0]["name"],
        "resources": {"requests": {"cpu": "3"}},
        "allocatedResources": {"cpu": "3"},
    }
    lowered = a_pod(builder.with_("status.containerStatuses", [status]), uid="p")
    assert claim("4", [lowered]).amounts == {"cpu": Decimal(3), "pods": Decimal(1)}


def test_one_pod_stands_for_its_daemonset_the_newest_and_none_that_only_names_it() -> None:
    daemonsets = those(daemonset("a"))
    old, new = (
        bound("old", "a", created="2026-01-01T00:00:00Z"),
        bound("new", "a", created="2026-01-02T00:00:00Z"),
    )
    assert daemonsets.standing([new, old]) == {"a": new}
    assert daemonsets.standing([bound("unknown", "b")]) == {}
    assert daemonsets.standing([bound("elsewhere", "a", namespace="tenant")]) == {}
