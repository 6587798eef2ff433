import msgspec
import pytest
from support.builders import NodeBuilder, make_node

from fluxqueue.api.graphnames import taint_property
from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.queue.cluster.taint_set import TaintSet
from fluxqueue.queue.model.constraints import constraint_of

DISK = PRESSURES["DiskPressure"]
READY = {"type": "Ready", "status": "True"}


def node(builder: NodeBuilder) -> Node:
    return msgspec.convert(builder.build(), Node)


def pressed(condition: str, status: str = "True") -> NodeBuilder:
    return make_node().with_("status.conditions", [READY, {"type": condition, "status": status}])


def became(taints: TaintSet, old: Node | None, new: Node | None) -> None:
    taints.follow(Change(ChangeKind.MODIFIED, old, new))


@pytest.mark.parametrize("taint", PRESSURES.values(), ids=lambda taint: taint.key)
def test_a_node_under_pressure_takes_only_pods_that_tolerate_it(taint: Taint) -> None:
    under = graph_node(node(make_node().taint(taint.key, taint.effect))).spec
    assert taint_property(taint) in under.properties
    assert not under.down
    assert constraint_of(PodSpec(), (taint,)) == {"not": [{"properties": [taint_property(taint)]}]}
    tolerant = msgspec.convert({"tolerations": [{"key": taint.key, "operator": "Exists", "effect": "NoSchedule"}]}, PodSpec)
    assert constraint_of(tolerant, (taint,)) is None


@pytest.mark.parametrize("condition", PRESSURES)
def test_a_condition_of_a_node_counts_before_its_taint_is_there(condition: str) -> None:
    assert taint_property(PRESSURES[condition]) in graph_node(node(pressed(condition))).spec.properties
    assert taint_property(PRESSURES[condition]) not in graph_node(node(pressed(condition, "False"))).spec.properties


def test_a_node_that_is_cordoned_or_not_ready_is_down_and_has_no_taint_for_it() -> None:
    taints = TaintSet()
    became(taints, None, node(make_node().cordoned().taint("node.kubernetes.io/unschedulable", "NoSchedule")))
    became(taints, None, node(make_node("n2").not_ready().taint("node.kubernetes.io/not-ready", "NoExecute")))
    assert taints.taints == frozenset()


def test_requests_speak_of_what_keeps_pods_from_some_node_and_of_nothing_else() -> None:
    taints = TaintSet((Taint(key="coming", effect="NoSchedule"),))
    soft = node(make_node().taint("dedicated", "NoSchedule", "x").taint("crowded", "PreferNoSchedule"))
    became(taints, None, soft)
    assert {taint.key for taint in taints.taints} == {"coming", "dedicated"}
    became(taints, soft, None)
    assert {taint.key for taint in taints.taints} == {"coming"}


def test_pressure_that_begins_and_ends_on_many_nodes_resyncs_pending_work_once() -> None:
    taints = TaintSet()
    for _ in range(3):
        for name in ("a", "b", "c"):
            calm, tense = node(make_node(name)), node(make_node(name).taint(DISK.key, DISK.effect))
            became(taints, calm, tense)
            became(taints, tense, calm)
    assert taints.version == 1
    assert taints.taints == {DISK}


def test_a_taint_that_another_node_has_already_changes_nothing() -> None:
    taints = TaintSet()
    became(taints, None, node(make_node("a").taint("dedicated", "NoSchedule", "x")))
    before = taints.version
    became(taints, None, node(make_node("b").taint("dedicated", "NoSchedule", "x")))
    became(taints, node(make_node("b").taint("dedicated", "NoSchedule", "x")), None)
    assert taints.version == before
