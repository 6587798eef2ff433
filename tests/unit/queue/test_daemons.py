from __future__ import annotations

from typing import Any

import msgspec
import pytest
from builders import NodeBuilder, make_node, make_pod

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.nodes import graph_node
from fluxqueue.queue.daemons import awaited

PREFERENCE = {"labelSelector": {}, "topologyKey": "zone"}


def daemonset(uid: str = "d", **spec: Any) -> DaemonSet:
    pod = make_pod().cpu("1").build()["spec"] | spec
    return msgspec.convert({"metadata": {"name": uid, "uid": uid}, "spec": {"template": {"spec": pod}}}, DaemonSet)


def coming(builder: NodeBuilder, *daemonsets: DaemonSet, present: tuple[str, ...] = ()) -> int:
    node = msgspec.convert(builder.build(), Node)
    return len(awaited(node, graph_node(node).spec, daemonsets, present))


def test_a_node_that_has_just_appeared_awaits_the_pods_of_its_daemonsets_until_they_are_there() -> None:
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
        (make_node(), {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [PREFERENCE]}}}, 1),
    ],
)
def test_a_daemonset_matches_nodes_as_its_controller_says(node: NodeBuilder, spec: dict[str, Any], expected: int) -> None:
    assert coming(node, daemonset(**spec)) == expected
