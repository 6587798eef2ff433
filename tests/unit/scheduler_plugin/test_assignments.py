from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import PodBuilder, make_pod
from support.queue_builders import a_pod

from fluxqueue.api import hostlists
from fluxqueue.scheduler_plugin.assignments import InvalidAssignment, NodeAssignment, assignment_of


def ours() -> PodBuilder:
    return make_pod().with_("spec.schedulerName", "FluxionScheduler")


def given_node(nodes: str = "n1") -> PodBuilder:
    return ours().annotation("fluxqueue/allocation", "7").annotation("fluxqueue/fluxion-nodes", nodes)


def in_go(label: str) -> PodBuilder:
    return ours().label("fluxqueue/fluxion-nodes", label)


def placed(builder: PodBuilder) -> NodeAssignment | None:
    return assignment_of(a_pod(builder))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            given_node().with_("spec.schedulerName", "default-scheduler"), id="of the stock scheduler"
        ),
        pytest.param(given_node().without("spec.schedulerName"), id="of no named scheduler"),
        pytest.param(given_node().on_node("n1"), id="bound"),
        pytest.param(given_node().phase("Succeeded"), id="ended"),
        pytest.param(
            given_node().with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), id="being deleted"
        ),
        pytest.param(given_node().gate("fluxqueue"), id="with our gate"),
        pytest.param(given_node().gate("example.com/quota"), id="with the gate of another"),
        pytest.param(ours(), id="held: nobody has given it a node"),
        pytest.param(
            ours().annotation("fluxqueue/fluxion-nodes", "n1"), id="held: a node without an allocation"
        ),
    ],
)
def test_there_is_nothing_to_do_for_a_pod_that_is_not_ours_to_bind_now(pod: PodBuilder) -> None:
    assert placed(pod) is None


def test_a_released_pod_goes_to_the_node_of_its_annotation() -> None:
    assert placed(given_node()) == NodeAssignment("n1", "7", 1)
    assert placed(given_node("n[1-3]").index(2)) == NodeAssignment("n3", "7", 1)
    assert placed(given_node("n3").index(2)) == NodeAssignment("n3", "7", 1)


def test_a_member_of_a_gang_carries_the_size_of_the_gang() -> None:
    assert placed(given_node().annotation("fluxqueue/gang-size", "100")) == NodeAssignment("n1", "7", 100)


def test_a_pod_of_the_go_project_goes_to_the_entry_of_its_completion_index() -> None:
    assert placed(in_go("n1__n2.example.com").index(1)) == NodeAssignment("n2.example.com")
    key = "batch.kubernetes.io/job-completion-index"
    assert (
        placed(in_go("n1__n2").label(key, "1"))
        == placed(in_go("n1__n2").annotation(key, "1"))
        == NodeAssignment("n2")
    )


def test_a_pod_without_an_index_goes_to_the_first_entry() -> None:
    assert placed(in_go("n1__n2")) == NodeAssignment("n1")


def test_an_allocation_wins_over_the_label_of_the_go_project() -> None:
    assert placed(given_node("n5").label("fluxqueue/fluxion-nodes", "n1")) == NodeAssignment("n5", "7")


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (
            given_node().without("metadata.annotations.fluxqueue/fluxion-nodes"),
            "carries the allocation '7', but its annotation",
        ),
        (given_node(""), "names no node: delete the pod"),
        (given_node("n[1-"), "annotation fluxqueue/fluxion-nodes cannot be read"),
        (given_node("none.invalid"), "'none.invalid' for the completion index 0, which is no node"),
        (given_node("n[1-2]"), "names 2 nodes, and the pod has no completion index"),
        (given_node("n[1-2]").index(2), "names 2 nodes and the pod has the completion index 2"),
        (given_node().annotation("fluxqueue/gang-size", "many"), "'many', which is no number of pods"),
        (given_node().annotation("fluxqueue/gang-size", "0"), "'0', which is no number of pods"),
        (
            in_go("n1__n2").index(2),
            "names 2 nodes and the pod has the completion index 2, so there is none for it: name 3 nodes",
        ),
        (in_go("n1").index(1), "names 1 node and"),
        (in_go("n1____n2").index(1), "has an empty entry for the completion index 1"),
        (in_go(""), "has an empty entry for the completion index 0"),
        (in_go("Node_1"), "'Node_1' for the completion index 0, which is no node"),
        (in_go("n1").index("first"), "'first', which is no completion index"),
    ],
)
def test_an_unreadable_value_is_reported_in_a_sentence(pod: PodBuilder, expected: str) -> None:
    with pytest.raises(InvalidAssignment) as raised:
        placed(pod)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@settings(max_examples=50)
@given(
    st.lists(st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,4})?", fullmatch=True), min_size=1, max_size=20),
    st.data(),
)
def test_both_schemes_read_the_same_node_from_the_same_list(nodes: list[str], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(nodes) - 1))
    by_label, by_annotation = (
        placed(in_go("__".join(nodes)).index(index)),
        placed(given_node(hostlists.encode(nodes)).index(index)),
    )
    assert by_label is not None
    assert by_annotation is not None
    assert by_label.node == nodes[index]
    assert by_annotation.node == nodes[index]


@settings(max_examples=60)
@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=8), st.text(max_size=8))
def test_any_text_gives_a_node_or_a_sentence(nodes: str, index: str, size: str, allocation: str) -> None:
    key = "fluxqueue/fluxion-nodes"
    pods = [
        in_go(nodes).index(index),
        ours()
        .annotation(key, nodes)
        .annotation("fluxqueue/allocation", allocation)
        .annotation("fluxqueue/gang-size", size)
        .index(index),
    ]
    for pod in pods:
        with suppress(InvalidAssignment):
            found = placed(pod)
            assert found is not None
            assert found.node
            assert found.gang_size >= 1
