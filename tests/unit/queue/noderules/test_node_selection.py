from typing import Any

import pytest
from support.builders import make_pod
from support.queue_builders import a_pod

from fluxqueue.queue.noderules.node_selection import selects

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
def test_an_expression_about_a_label_is_met_as_the_stock_scheduler_reads_it(asked: dict[str, Any], met: bool) -> None:
    assert selected({"matchExpressions": [asked]}) == met


def test_one_term_is_enough_and_all_of_a_term_must_hold() -> None:
    ssd, many, few = expression("disk", "In", "ssd"), expression("cores", "Gt", "32"), expression("cores", "Lt", "32")
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
    assert not selects(a_pod(pod.required_terms({"matchExpressions": [expression("disk", "DoesNotExist")]})).spec, "n1", LABELS)
