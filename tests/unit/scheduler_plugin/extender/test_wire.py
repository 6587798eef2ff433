"""Requests as kube-scheduler writes them, and responses as it reads them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_pod

from fluxqueue.scheduler_plugin.extender.wire import (
    Arguments,
    BindingArguments,
    FilterResult,
    MalformedRequest,
    encode_binding,
    encode_filter,
    encode_scores,
    read_arguments,
    read_binding,
)

POD = make_pod("p").namespace("team").uid("u").cpu("1").build()


def body(**fields: Any) -> bytes:
    return json.dumps(
        {"Pod": POD, "Nodes": None, "NodeNames": None, **fields}, separators=(",", ":")
    ).encode()


def node(name: str) -> dict[str, Any]:
    """Return a pod as Go writes it after a watch: without kind, and with fields unknown to us."""
    return {
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": {"fieldOfTheFuture": [1, {"a": "é"}]},
        "status": {},
    }


def read(answer: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(answer)
    return decoded


def test_names_of_nodes_are_read_and_go_back_as_names() -> None:
    arguments = read_arguments(body(NodeNames=["n1", "n2", "n3"]))
    assert (arguments.pod.metadata.name, arguments.pod.spec.containers[0].resources.requests) == (
        "p",
        {"cpu": "1"},
    )
    assert arguments.names == ["n1", "n2", "n3"]
    answer = read(encode_filter(FilterResult(["n2"], {"n1": "full"}, {"n3": "closed"}), arguments))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {"n1": "full"},
        "FailedAndUnresolvableNodes": {"n3": "closed"},
        "Error": "",
    }


def test_whole_nodes_go_back_whole() -> None:
    nodes = [node("n1"), {"kind": "Node", **node("n2")}, node("n3")]
    arguments = read_arguments(body(Nodes={"metadata": {}, "items": nodes}))
    assert arguments.names == ["n1", "n2", "n3"]
    answer = read(encode_filter(FilterResult(["n1", "n2"], {}, {"n3": "closed"}), arguments))
    assert answer["Nodes"] == {"items": nodes[:2]}
    assert answer["NodeNames"] is None


def test_no_node_at_all_is_an_answer() -> None:
    for arguments in (read_arguments(body(NodeNames=[])), read_arguments(body(Nodes={"items": None}))):
        assert arguments.names == []
        answer = read(encode_filter(FilterResult([]), arguments))
        assert answer["NodeNames"] == [] or answer["Nodes"] == {"items": []}


def test_a_failure_is_reported_in_the_response() -> None:
    assert read(encode_filter("the caches are being filled"))["Error"] == "the caches are being filled"
    assert read(encode_binding("the node is full")) == {"Error": "the node is full"}
    assert read(encode_binding("")) == {"Error": ""}


def test_scores_are_a_list_of_hosts() -> None:
    assert json.loads(encode_scores({"n1": 10, "n2": 0})) == [
        {"Host": "n1", "Score": 10},
        {"Host": "n2", "Score": 0},
    ]


def test_a_binding_is_read() -> None:
    sent = {"PodName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "n1"}
    assert read_binding(json.dumps(sent).encode()) == BindingArguments("p", "team", "u", "n1")


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        pytest.param(b"", "cannot be read", id="nothing"),
        pytest.param(b"\xff\xfe", "cannot be read", id="no text"),
        pytest.param(b"[]", "cannot be read", id="a list"),
        pytest.param(b'{"NodeNames":["n1"]}', "cannot be read", id="no pod"),
        pytest.param(b'{"Pod":{},"NodeNames":[1]}', "cannot be read", id="a number for a name"),
        pytest.param(b'{"Pod":{}}', "neither Nodes nor NodeNames", id="no nodes"),
        pytest.param(
            b'{"Pod":{},"Nodes":{"items":[{"metadata":{}}]}}',
            "the Node cannot be read",
            id="a node without a name",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_a_sentence(sent: bytes, sentence: str) -> None:
    with pytest.raises(MalformedRequest, match=sentence):
        read_arguments(sent)


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_binding_must_be_complete(missing: str) -> None:
    sent = {"PodName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "n1"}
    for broken in ({**sent, missing: ""}, {key: value for key, value in sent.items() if key != missing}):
        with pytest.raises(MalformedRequest):
            read_binding(json.dumps(broken).encode())


def test_endless_nesting_is_refused_without_harm() -> None:
    deep = "[" * 3_000 + "]" * 3_000
    pod = f'{{"metadata":{{"name":"p"}},"spec":{{"affinity":{{"nodeAffinity":{deep}}}}}}}'
    arguments = read_arguments(f'{{"Pod":{pod},"NodeNames":["n1"]}}'.encode())
    assert (arguments.pod.metadata.name, arguments.names) == ("p", ["n1"])


DOCUMENTS = st.recursive(st.none() | st.text() | st.integers(), st.lists).map(
    lambda found: json.dumps(found).encode()
)


@given(st.one_of(st.binary(), st.text().map(str.encode), DOCUMENTS))
def test_no_body_raises_anything_else(sent: bytes) -> None:
    for reader in (read_arguments, read_binding):
        with contextlib.suppress(MalformedRequest):
            assert isinstance(reader(sent), Arguments | BindingArguments)
