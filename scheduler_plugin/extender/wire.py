"""Requests of kube-scheduler and the responses to them (k8s.io/kube-scheduler/extender/v1).

The Go types declare no JSON names, so fields are named as in Go: ``Pod``, ``NodeNames``. Kubernetes objects
inside them are camelCase as everywhere. Only the fields of the pod that its assignment needs are read. If
kube-scheduler sends whole nodes (``nodeCacheCapable: false``), only their names are read, and the bytes of
the remaining ones are returned unchanged: a field of a newer Kubernetes survives, and 5,000 nodes need not be
decoded.

A body that cannot be read raises `MalformedRequest`. kube-scheduler shows people only the code of an HTTP
error, so every error is in the field ``Error`` of a response with status 200. The response to ``prioritize``
has no such field; kube-scheduler continues without our scores if that call fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from fluxqueue.api.nesting import decode_limited
from fluxqueue.api.pods import Pod

__all__ = [
    "Arguments",
    "BindingArguments",
    "FilterResult",
    "MalformedRequest",
    "encode_binding",
    "encode_filter",
    "encode_scores",
    "read_arguments",
    "read_binding",
]

_T = TypeVar("_T")

_HEAD: Final = re.compile(rb'\{"metadata":\{"name":"([a-z0-9.-]+)"')
"""The beginning of a Node as Go writes it; with this match its name is known without reading the rest."""


class MalformedRequest(ValueError):
    """The body is not a request of the extender API; the message gives the reason."""


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: Pod
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _NamedNode(msgspec.Struct, frozen=True):
    metadata: _Meta


class Arguments(msgspec.Struct, frozen=True):
    """The request of ``filter`` and ``prioritize``.

    Attributes
    ----------
    pod
        The pod to be scheduled, in the state that kube-scheduler knows.
    names
        Feasible nodes, in kube-scheduler's order.
    nodes
        The same nodes as whole objects, undecoded; None if kube-scheduler sends names.
    """

    pod: Pod
    names: list[str]
    nodes: list[msgspec.Raw] | None = None


class BindingArguments(msgspec.Struct, frozen=True):
    """The request of ``bind``."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class FilterResult(msgspec.Struct, frozen=True):
    """The result of ``filter``.

    Attributes
    ----------
    kept
        Nodes that may take the pod.
    failed
        Sentences for nodes that cannot take it now, but might after preemption.
    unresolvable
        Sentences for nodes where evicting pods would not help.
    """

    kept: Sequence[str]
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}


class _AnsweredNodes(msgspec.Struct, frozen=True):
    items: Sequence[msgspec.Raw]


class _FilterAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: _AnsweredNodes | None = None
    node_names: Sequence[str] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class _BindingAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    error: str = ""


_arguments = msgspec.json.Decoder(_ExtenderArgs)
_bindings = msgspec.json.Decoder(BindingArguments)
_named = msgspec.json.Decoder(_NamedNode)
_encoder = msgspec.json.Encoder()


def read_arguments(body: bytes) -> Arguments:
    """Read ``ExtenderArgs``.

    Parameters
    ----------
    body
        The POST's body, JSON.

    Raises
    ------
    MalformedRequest
        Not JSON, no pod, neither nodes nor names, or a field of the wrong type. Never another exception.
    """
    arguments = _decode(_arguments, body, "ExtenderArgs")
    if arguments.node_names is not None:
        return Arguments(arguments.pod, arguments.node_names)
    if arguments.nodes is None:
        raise MalformedRequest("the ExtenderArgs have neither Nodes nor NodeNames")
    items = arguments.nodes.items or []
    return Arguments(arguments.pod, [_name_of(item) for item in items], items)


def read_binding(body: bytes) -> BindingArguments:
    """Read ``ExtenderBindingArgs``.

    Raises
    ------
    MalformedRequest
        Not JSON, or a field is missing, empty or of the wrong type. Never another exception.
    """
    binding = _decode(_bindings, body, "ExtenderBindingArgs")
    if not (binding.name and binding.namespace and binding.uid and binding.node):
        raise MalformedRequest("the ExtenderBindingArgs must have PodName, PodNamespace, PodUID and Node")
    return binding


def encode_filter(result: FilterResult | str, arguments: Arguments | None = None) -> bytes:
    """Write an ``ExtenderFilterResult``.

    Parameters
    ----------
    result
        The decision, or a sentence that says why there is none.
    arguments
        The request; nodes are returned in the form in which they came.
    """
    if isinstance(result, str):
        return _encoder.encode(_FilterAnswer(error=result))
    nodes, names = None, None
    if arguments is None or arguments.nodes is None:
        names = result.kept
    else:
        kept = frozenset(result.kept)
        nodes = _AnsweredNodes(
            [node for name, node in zip(arguments.names, arguments.nodes, strict=True) if name in kept]
        )
    return _encoder.encode(_FilterAnswer(nodes, names, result.failed, result.unresolvable))


def encode_scores(scores: Mapping[str, int]) -> bytes:
    """Write a ``HostPriorityList``."""
    return _encoder.encode([_HostPriority(host, score) for host, score in scores.items()])


def encode_binding(error: str) -> bytes:
    """Write an ``ExtenderBindingResult``; an empty sentence means that the pod is bound."""
    return _encoder.encode(_BindingAnswer(error))


def _name_of(node: msgspec.Raw) -> str:
    head = _HEAD.match(node)
    return head[1].decode() if head is not None else _decode(_named, node, "Node").metadata.name


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw, what: str) -> _T:
    """Decode JSON; too deep nesting is an error as well."""
    try:
        return decode_limited(decoder, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"the {what} cannot be read: {error}") from None
