"""Taints of nodes, and the tolerations of requests."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import NodeBuilder, make_node

from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.pods import Toleration
from fluxqueue.api.taints import PRESSURES, effective_taints, read_toleration, tolerates, toleration_texts

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")
READY = {"type": "Ready", "status": "True"}


def taints_of(builder: NodeBuilder) -> frozenset[Taint]:
    return effective_taints(msgspec.convert(builder.build(), Node))


@pytest.mark.parametrize("condition", PRESSURES)
def test_a_condition_of_a_node_counts_before_its_taint_is_there(condition: str) -> None:
    for status, expected in (("True", {PRESSURES[condition]}), ("False", set())):
        pressed = make_node().with_("status.conditions", [READY, {"type": condition, "status": status}])
        assert taints_of(pressed) == expected


def test_a_node_that_is_cordoned_or_not_ready_has_no_taint_for_it() -> None:
    assert (
        taints_of(make_node().cordoned().taint("node.kubernetes.io/unschedulable", "NoSchedule"))
        == frozenset()
    )
    assert (
        taints_of(make_node().not_ready().taint("node.kubernetes.io/not-ready", "NoExecute")) == frozenset()
    )


TOLERATIONS = [
    pytest.param(Toleration(key="gpu", value="yes"), True, id="equal"),
    pytest.param(Toleration(key="gpu", value="no"), False, id="another value"),
    pytest.param(Toleration(key="gpu", operator="Exists"), True, id="any value"),
    pytest.param(Toleration(operator="Exists"), True, id="everything"),
    pytest.param(Toleration(operator="Exists", effect="NoSchedule"), True, id="everything of this effect"),
    pytest.param(Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
    pytest.param(Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True, id="this effect"),
    pytest.param(Toleration(key="disk", operator="Exists"), False, id="another key"),
    pytest.param(Toleration(value="yes"), False, id="no key, which only Exists may lack"),
    pytest.param(Toleration(key="gpu", value="", operator="Equal"), False, id="an empty value"),
]


@pytest.mark.parametrize(("toleration", "does"), TOLERATIONS)
def test_tolerations_are_those_of_the_scheduler(toleration: Toleration, does: bool) -> None:
    assert tolerates(toleration, GPU) is does


@pytest.mark.parametrize(("toleration", "does"), TOLERATIONS)
def test_the_text_of_a_toleration_tolerates_the_same(toleration: Toleration, does: bool) -> None:
    read = [read_toleration(text) for text in toleration_texts([toleration])]
    assert any(each is not None and tolerates(each, GPU) for each in read) is does


@pytest.mark.parametrize(
    "text", ["", "gpu", "gpu:Never", "=yes:NoSchedule", "a:b:NoSchedule", "gpu:PreferNoSchedule"]
)
def test_any_other_text_is_no_toleration(text: str) -> None:
    assert read_toleration(text) is None
