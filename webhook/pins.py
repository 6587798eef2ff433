"""Pinning a pod to the node of its allocation.

The template of a released Job carries the hostlist of the whole allocation: entry *i* is the node of
completion index *i* (RFC 29). Each of its pods is created with that list, and with its own index in an
annotation that the Job controller writes. Here the list is reduced to the pod's own entry, and a required
node affinity on ``metadata.name`` is added. It matches exactly one node by name, and it is the only form with
which kube-scheduler considers one node instead of all. So a Job of thousands of pods is placed without a
write per pod.

Node selector terms are alternatives, so the pin has to go into every one of them. An empty term matches no
node and stays unchanged, because with a pin it would match one. What the user wrote is never removed.

`fluxqueue.webhook.pods` decides whether a pod is pinned.

A pod of our own scheduler gets no affinity: that scheduler only reads the node that is left in the list.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.hostlists import Hostlist, InvalidHostlist, parse
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.webhook import patches
from fluxqueue.webhook.patches import Operation

__all__ = ["Affinity", "Unpinnable", "assigned_to", "node_of", "pin", "pinned_to", "read_affinity"]

_REQUIRED = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"{_REQUIRED}/nodeSelectorTerms"
_NODE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_INDEX = re.compile(r"[0-9]{1,9}")


class Unpinnable(ValueError):
    """The pod's allocation names no node for it.
    The message gives the reason, and the pod has to be gated.
    """


class _Requirement(PartialObject, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(PartialObject, frozen=True):
    match_expressions: list[Any] | None = None
    match_fields: list[_Requirement] | None = None

    @property
    def matches_nothing(self) -> bool:
        return not self.match_expressions and not self.match_fields


class _NodeSelector(PartialObject, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(PartialObject, frozen=True):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class Affinity(PartialObject, frozen=True):
    """The fields of a pod's affinity that pinning reads."""

    node_affinity: _NodeAffinity | None = None

    @property
    def required(self) -> _NodeSelector | None:
        """The required node selector, or None."""
        return (
            self.node_affinity.required_during_scheduling_ignored_during_execution
            if self.node_affinity
            else None
        )


_affinities: msgspec.json.Decoder[Affinity | None] = msgspec.json.Decoder(Affinity | None)


def read_affinity(raw: msgspec.Raw) -> Affinity | None:
    """Decode ``spec.affinity``.

    Parameters
    ----------
    raw
        Its JSON; empty if the field is missing.

    Returns
    -------
    Affinity or None
        None if there is none.

    Raises
    ------
    Unpinnable
        The API server would not accept it. The pod is gated, and the API server reports the rest.
    """
    if not bytes(raw):
        return None
    try:
        return _affinities.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unpinnable(f"spec.affinity cannot be read: {error}") from None


@functools.lru_cache(maxsize=32)
def _hosts(text: str) -> Hostlist:
    return parse(text)


def node_of(meta: ObjectMeta) -> str:
    """Return the node that a pod's allocation gives it.

    Parameters
    ----------
    meta
        The pod's metadata, with the hostlist of its Job and, for an Indexed Job, its completion index.

    Raises
    ------
    Unpinnable
        The list is missing or unreadable, the index is unreadable, beyond the list or without a node, or
        there are several nodes and no index.
    """
    text = meta.annotation(names.NODES_ANNOTATION) or ""
    try:
        hosts = _hosts(text)
    except InvalidHostlist as error:
        raise Unpinnable(f"annotation {names.NODES_ANNOTATION}: {error}") from None
    if not hosts:
        raise Unpinnable(f"annotation {names.NODES_ANNOTATION} names no node")
    written = meta.annotation(names.COMPLETION_INDEX_ANNOTATION)
    if written is None:
        if len(hosts) > 1:
            raise Unpinnable(
                f"annotation {names.NODES_ANNOTATION} names {len(hosts)} nodes and the pod has no "
                "completion index"
            )
        index = 0
    elif _INDEX.fullmatch(written):
        index = int(written)
    else:
        raise Unpinnable(f"completion index {written!r} is not a number")
    if index >= len(hosts):
        raise Unpinnable(
            f"completion index {index} is beyond the {len(hosts)} nodes of annotation "
            f"{names.NODES_ANNOTATION}"
        )
    return _node_at(hosts, index)


def _node_at(hosts: Hostlist, index: int) -> str:
    node = hosts[index]
    if node == names.NO_NODE:
        raise Unpinnable(
            f"completion index {index} has no node in annotation {names.NODES_ANNOTATION}: it had finished"
        )
    if not _NODE_NAME.fullmatch(node):
        raise Unpinnable(f"annotation {names.NODES_ANNOTATION}: {node!r} cannot be the name of a node")
    return node


def pinned_to(meta: ObjectMeta, affinity: Affinity | None) -> str | None:
    """Return the node to which an earlier pass has pinned this pod, or None.

    A pass leaves a list of one node, and the pin in every term. A repeated invocation finds that and must not
    read the list again, because the pod's index refers to the list of the whole Job.
    """
    text = meta.annotation(names.NODES_ANNOTATION)
    required = affinity.required if affinity else None
    terms = [
        term
        for term in (required.node_selector_terms if required else None) or ()
        if not term.matches_nothing
    ]
    if not text or not terms:
        return None
    pinned = all(_pins(term, text) for term in terms)
    return text if pinned else None


def assigned_to(meta: ObjectMeta) -> str | None:
    """Return the node that an earlier pass has left in the list of a pod of our scheduler; None if there was
    no earlier pass.

    Such a pod has no affinity to show it. But a template with an allocation carries our gate, and the pass
    that reduces the list removes the gate. So call this only for a pod without the gate: its list has one
    node and must not be read by its index again.

    Raises
    ------
    Unpinnable
        The remaining entry of the list is not the name of a node.
    """
    try:
        hosts = _hosts(meta.annotation(names.NODES_ANNOTATION) or "")
    except InvalidHostlist as error:
        raise Unpinnable(f"annotation {names.NODES_ANNOTATION}: {error}") from None
    return _node_at(hosts, 0) if len(hosts) == 1 else None


def pin(affinity: Affinity | None, node: str) -> list[Operation]:
    """Return operations that require this node in every term of the pod's node affinity.

    Returns
    -------
    list of Operation
        Empty if every term has the pin already.

    Raises
    ------
    Unpinnable
        The present terms match no node at all, so none can be required of them.
    """
    requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    if affinity is None:
        return [patches.add("/spec/affinity", {"nodeAffinity": {_REQUIRED.rpartition("/")[2]: selector}})]
    if affinity.node_affinity is None:
        return [patches.add("/spec/affinity/nodeAffinity", {_REQUIRED.rpartition("/")[2]: selector})]
    if affinity.required is None:
        return [patches.add(_REQUIRED, selector)]
    if not affinity.required.node_selector_terms:
        return [patches.add(_TERMS, selector["nodeSelectorTerms"])]
    operations = []
    terms = affinity.required.node_selector_terms
    if all(term.matches_nothing for term in terms):
        raise Unpinnable("its required node affinity has only empty terms, which match no node")
    for position, term in enumerate(terms):
        if term.matches_nothing or _pins(term, node):
            continue
        if term.match_fields:
            operations.append(patches.add(f"{_TERMS}/{position}/matchFields/-", requirement))
        else:
            operations.append(patches.add(f"{_TERMS}/{position}/matchFields", [requirement]))
    return operations


def _pins(term: _Term, node: str) -> bool:
    wanted = _Requirement(key="metadata.name", operator="In", values=[node])
    return any(field == wanted for field in term.match_fields or ())
