import random
from typing import Any

import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_pod

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.constraints import NodeSubject, read_constraint
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.queue.model.constraints import InexpressibleConstraint, constraint_of
from fluxqueue.queue.noderules.node_selection import named_nodes, selects

LABELS = {"disk": "ssd", "cores": "64", "generation": "four"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def selected(*terms: dict[str, Any]) -> bool:
    return selects(a_pod(make_pod().required_terms(*terms)).spec, "n1", LABELS)


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        (expression("disk", "In", "hdd", "ssd"), True),
        (expression("disk", "In", "hdd"), False),
        (expression("rack", "In", "r1"), False),
        (expression("disk", "NotIn", "ssd"), False),
        (expression("rack", "NotIn", "r1"), True),
        (expression("disk", "Exists"), True),
        (expression("rack", "Exists"), False),
        (expression("rack", "DoesNotExist"), True),
        (expression("disk", "DoesNotExist"), False),
        (expression("cores", "Gt", "63"), True),
        (expression("cores", "Gt", "64"), False),
        (expression("cores", "Lt", "65"), True),
        (expression("cores", "Lt", "64"), False),
        (expression("generation", "Gt", "3"), False),
        (expression("rack", "Lt", "3"), False),
        (expression("cores", "Gt", str(2**63)), False),
        (expression("cores", "Like", "6.*"), False),
    ],
)
def test_an_expression_about_a_label_is_met_as_the_stock_scheduler_reads_it(
    asked: dict[str, Any], met: bool
) -> None:
    assert selected({"matchExpressions": [asked]}) == met


def test_one_term_is_enough_and_all_of_a_term_must_hold() -> None:
    ssd, many, few = (
        expression("disk", "In", "ssd"),
        expression("cores", "Gt", "32"),
        expression("cores", "Lt", "32"),
    )
    assert selected({"matchExpressions": [ssd, many]})
    assert not selected({"matchExpressions": [ssd, few]})
    assert selected({"matchExpressions": [few]}, {"matchExpressions": [ssd]})
    assert not selected({"matchExpressions": []})


def test_a_field_names_exactly_one_node() -> None:
    def by_name(operator: str, *names: str) -> dict[str, Any]:
        return {"matchFields": [expression("metadata.name", operator, *names)]}

    assert selected(by_name("In", "n1"))
    assert not selected(by_name("In", "n2"))
    assert selected(by_name("NotIn", "n2"))
    assert not selected(by_name("In", "n1", "n2"))


def test_the_node_selector_counts_beside_the_affinity() -> None:
    pod = make_pod().with_("spec.nodeSelector", {"disk": "ssd"})
    assert selects(a_pod(pod).spec, "n1", LABELS)
    assert not selects(a_pod(pod.with_("spec.nodeSelector", {"disk": "hdd"})).spec, "n1", LABELS)
    assert not selects(
        a_pod(pod.required_terms({"matchExpressions": [expression("disk", "DoesNotExist")]})).spec,
        "n1",
        LABELS,
    )


def test_the_constraint_of_the_matcher_admits_the_nodes_that_the_scheduler_admits() -> None:
    rng = random.Random(31)
    for _ in range(500):
        labels = {
            key: rng.choice(("ssd", "4", "-4", "64", ""))
            for key in ("disk", "cores", "rack")
            if rng.random() < 0.7
        }
        terms = [
            {"matchExpressions": [drawn(rng) for _ in range(rng.randint(1, 3))]}
            for _ in range(rng.randint(1, 2))
        ]
        pod = a_pod(make_pod().required_terms(*terms)).spec
        seen = graph_node(msgspec.convert({"metadata": {"name": "n1", "labels": labels}}, Node)).spec
        try:
            constraint = read_constraint(constraint_of(pod))
        except InexpressibleConstraint:
            admitted = False
        else:
            assert constraint is not None
            admitted = constraint.accepts(NodeSubject("n1", seen.properties))
        assert admitted is selects(pod, "n1", labels), (terms, labels)


def drawn(rng: random.Random) -> dict[str, Any]:
    key, operator = (
        rng.choice(("disk", "cores", "rack")),
        rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
    )
    match operator:
        case "In" | "NotIn":
            return expression(key, operator, *rng.sample(("ssd", "4", "64"), rng.randint(1, 2)))
        case "Gt" | "Lt":
            return expression(key, operator, rng.choice(("3", "-5", "64", "+4", "many", str(2**63))))
    return expression(key, operator)


def test_nodes_are_named_if_each_alternative_names_one() -> None:
    ssd = expression("disk", "In", "ssd")
    n1, n2 = ({"matchFields": [expression("metadata.name", "In", name)]} for name in ("n1", "n2"))

    def named(*terms: dict[str, Any]) -> set[str] | None:
        affinity = a_pod(make_pod().required_terms(*terms)).spec.affinity or {}
        return named_nodes(affinity["nodeAffinity"])

    assert named({**n1, "matchExpressions": [ssd]}, n2) == {"n1", "n2"}
    assert named(n1, {"matchExpressions": [ssd]}) is None
    assert named({"matchFields": [expression("metadata.name", "NotIn", "n1")]}) is None
    assert named_nodes({}) is None
