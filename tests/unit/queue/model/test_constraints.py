from typing import Any

import msgspec
import pytest

from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.model.constraints import InexpressibleConstraint, constraint_of, label_rules, tolerance


def spec(**said: Any) -> PodSpec:
    return msgspec.convert(said, PodSpec)


def affinity(*terms: dict[str, Any]) -> PodSpec:
    return spec(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
            }
        }
    )


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_nothing_asked_is_no_rule_about_labels() -> None:
    assert label_rules(spec()) is None
    assert label_rules(spec(affinity={"nodeAffinity": {}, "podAffinity": {}})) is None


@pytest.mark.parametrize(
    ("pod", "constraint"),
    [
        pytest.param(
            spec(nodeSelector={"b": "2", "a": "1"}),
            {"properties": ["a=1", "b=2"]},
            id="node selector, in one order",
        ),
        pytest.param(affinity(expression("a", "In", "1")), {"properties": ["a=1"]}, id="one value"),
        pytest.param(affinity(expression("a", "In", "1", "2")), {"in": ["a", "1", "2"]}, id="one of several"),
        pytest.param(
            affinity(expression("a", "NotIn", "1", "2")),
            {"not": [{"in": ["a", "1", "2"]}]},
            id="none of several",
        ),
        pytest.param(affinity(expression("a", "Exists")), {"properties": ["a"]}, id="exists"),
        pytest.param(
            affinity(expression("a", "DoesNotExist")), {"not": [{"properties": ["a"]}]}, id="does not exist"
        ),
        pytest.param(affinity(expression("a", "Gt", "4")), {"greater": ["a", "4"]}, id="more than"),
        pytest.param(affinity(expression("a", "Lt", "-4")), {"less": ["a", "-4"]}, id="less than"),
        pytest.param(
            affinity(expression("a", "Gt", "four"), expression("b", "Exists")),
            {"properties": ["b"]},
            id="a comparison with no number beside another term adds nothing",
        ),
        pytest.param(
            affinity(expression("a", "Exists"), expression("b", "Exists")),
            {"or": [{"properties": ["a"]}, {"properties": ["b"]}]},
            id="terms are alternatives",
        ),
        pytest.param(
            affinity(
                {"matchExpressions": [expression(key, "Exists")["matchExpressions"][0] for key in "ab"]}
            ),
            {"and": [{"properties": ["a"]}, {"properties": ["b"]}]},
            id="expressions of a term hold together",
        ),
        pytest.param(
            affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
            {"hostlist": ["n1"]},
            id="a node",
        ),
        pytest.param(
            affinity({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}),
            {"not": [{"hostlist": ["n1"]}]},
            id="not that node",
        ),
        pytest.param(
            affinity({}, expression("a", "Exists")),
            {"properties": ["a"]},
            id="an empty term beside another adds nothing",
        ),
    ],
)
def test_required_rules_become_expressions_over_properties(pod: PodSpec, constraint: dict[str, Any]) -> None:
    assert label_rules(pod) == constraint


def test_the_nodes_of_a_queue_are_required_as_well() -> None:
    assert label_rules(spec(nodeSelector={"a": "1"}), {"b": "2", "a": "1"}) == {"properties": ["a=1", "b=2"]}
    contradictory = label_rules(spec(nodeSelector={"a": "1"}), {"a": "2"})
    assert contradictory == {"properties": ["a=1", "a=2"]}, "no node has both, which is what was asked"


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(affinity(expression("a", "Gt", "four")), "fits no node", id="more than no number"),
        pytest.param(affinity(expression("a", "Lt", "4", "5")), "fits no node", id="less than two numbers"),
        pytest.param(affinity(expression("a", "Like", "4")), "operator Like on a", id="no operator"),
        pytest.param(affinity({}), "fits no node", id="a term of nothing"),
    ],
)
def test_required_rules_that_the_graph_cannot_check_are_refused_by_name(pod: PodSpec, said: str) -> None:
    with pytest.raises(InexpressibleConstraint, match=said):
        label_rules(pod)


@pytest.mark.parametrize(
    "pod",
    [
        spec(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        spec(topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}]),
        spec(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
    ],
)
def test_preferences_and_rules_about_other_pods_are_no_rules_about_nodes(pod: PodSpec) -> None:
    assert label_rules(pod) is None


def test_a_request_says_what_it_tolerates_and_names_no_taint() -> None:
    assert constraint_of(spec()) == {"tolerates": []}
    tolerant = spec(
        tolerations=[
            {"key": "gpu", "value": "yes"},
            {"key": "a", "operator": "Exists", "effect": "NoExecute"},
        ]
    )
    assert constraint_of(tolerant) == {"tolerates": ["a:NoExecute", "gpu=yes:"]}
    assert constraint_of(spec(tolerations=[{"operator": "Exists"}, {"key": "gpu"}])) is None, (
        "it may run anywhere"
    )


def test_what_decides_about_no_node_that_is_up_is_left_out() -> None:
    gone = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
        for what in ("not-ready", "unreachable")
    ]
    soft = [
        {"key": "busy", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"value": "no key"},
        {"key": "gpu", "operator": "Gt"},
    ]
    assert constraint_of(spec(tolerations=[*gone, *soft])) == {"tolerates": []}


def test_pods_that_start_together_get_nodes_that_all_of_them_tolerate() -> None:
    nothing, gpu, both = (
        spec(tolerations=[{"key": key, "operator": "Exists"} for key in keys]) for keys in ("", "g", "gs")
    )
    assert tolerance([nothing, gpu, both]) == {"tolerates": []}
    assert tolerance([both, gpu, both]) == {"tolerates": ["g:"]}
    other = spec(tolerations=[{"key": "s", "operator": "Exists"}])
    assert tolerance([gpu, other]) == {"and": [{"tolerates": ["g:"]}, {"tolerates": ["s:"]}]}
