from typing import Any

import msgspec
import pytest

from fluxqueue.api.nodes import Taint
from fluxqueue.api.pods import PodSpec, Toleration
from fluxqueue.queue.model.constraints import InexpressibleConstraint, constraint_of, tolerates

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


def spec(**said: Any) -> PodSpec:
    return msgspec.convert(said, PodSpec)


def affinity(*terms: dict[str, Any]) -> PodSpec:
    return spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}})


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_nothing_asked_is_no_constraint() -> None:
    assert constraint_of(spec()) is None
    assert constraint_of(spec(affinity={"nodeAffinity": {}, "podAffinity": {}})) is None


@pytest.mark.parametrize(
    ("pod", "constraint"),
    [
        pytest.param(spec(nodeSelector={"b": "2", "a": "1"}), {"properties": ["a=1", "b=2"]}, id="node selector, in one order"),
        pytest.param(affinity(expression("a", "In", "1")), {"properties": ["a=1"]}, id="one value"),
        pytest.param(
            affinity(expression("a", "In", "1", "2")), {"or": [{"properties": ["a=1"]}, {"properties": ["a=2"]}]}, id="one of several"
        ),
        pytest.param(
            affinity(expression("a", "NotIn", "1", "2")),
            {"not": [{"or": [{"properties": ["a=1"]}, {"properties": ["a=2"]}]}]},
            id="none of several",
        ),
        pytest.param(affinity(expression("a", "Exists")), {"properties": ["a"]}, id="exists"),
        pytest.param(affinity(expression("a", "DoesNotExist")), {"not": [{"properties": ["a"]}]}, id="does not exist"),
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
            affinity({"matchExpressions": [expression(key, "Exists")["matchExpressions"][0] for key in "ab"]}),
            {"and": [{"properties": ["a"]}, {"properties": ["b"]}]},
            id="expressions of a term hold together",
        ),
        pytest.param(
            affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), {"hostlist": ["n1"]}, id="a node"
        ),
        pytest.param(
            affinity({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}),
            {"not": [{"hostlist": ["n1"]}]},
            id="not that node",
        ),
        pytest.param(affinity({}, expression("a", "Exists")), {"properties": ["a"]}, id="an empty term beside another adds nothing"),
    ],
)
def test_required_rules_become_expressions_over_properties(pod: PodSpec, constraint: dict[str, Any]) -> None:
    assert constraint_of(pod) == constraint


def test_the_nodes_of_a_queue_are_required_as_well() -> None:
    assert constraint_of(spec(nodeSelector={"a": "1"}), (), {"b": "2", "a": "1"}) == {"properties": ["a=1", "b=2"]}
    contradictory = constraint_of(spec(nodeSelector={"a": "1"}), (), {"a": "2"})
    assert contradictory == {"properties": ["a=1", "a=2"]}, "no node has both, which is what was asked"


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(affinity(expression("a", "Gt", "four")), "matches no node", id="more than no number"),
        pytest.param(affinity(expression("a", "Lt", "4", "5")), "matches no node", id="less than two numbers"),
        pytest.param(affinity(expression("a", "Like", "4")), "operator Like on a", id="no operator"),
        pytest.param(affinity({}), "matches no node", id="a term of nothing"),
    ],
)
def test_required_rules_that_the_graph_cannot_check_are_refused_by_name(pod: PodSpec, said: str) -> None:
    with pytest.raises(InexpressibleConstraint, match=said):
        constraint_of(pod)


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
    assert constraint_of(pod) is None


def test_taints_it_does_not_tolerate_are_shunned_and_soft_ones_are_not() -> None:
    soft = Taint(key="busy", effect="PreferNoSchedule")
    assert constraint_of(spec(), (GPU, soft)) == {"not": [{"properties": ["taint:gpu=yes:NoSchedule"]}]}
    assert constraint_of(spec(tolerations=[{"key": "gpu", "value": "yes"}]), (GPU,)) is None


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        pytest.param(Toleration(key="gpu", value="yes"), True, id="equal"),
        pytest.param(Toleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="any value"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True, id="this effect"),
        pytest.param(Toleration(key="disk", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(value="yes"), False, id="no key, which only Exists may lack"),
    ],
)
def test_tolerations_are_those_of_the_scheduler(toleration: Toleration, does: bool) -> None:
    assert tolerates(toleration, GPU) is does
