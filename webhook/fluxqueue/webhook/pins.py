"""Pinning a pod to the node of its allocation.

A pin-released Job carries in its template the hostlist of its whole allocation, the entry *i* being the node of completion index *i*
(RFC 29). Each of its pods is created with that list, and with its own index as an annotation the Job controller writes. Here the list
is reduced to the pod's own entry, and a required node affinity on ``metadata.name`` is added: exactly one node, exact by name, and the
only form with which kube-scheduler looks at one node instead of all. So a Job of thousands is placed without a write per pod.

Node selector terms are alternatives, so the pin has to go into every one of them; an empty term matches no node and stays as it is,
for with a pin it would begin to match one. What the user wrote is never removed.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.hostlists import InvalidHostlist, decode
from fluxqueue.api.objects import ObjectMeta, Part
from fluxqueue.webhook import patches
from fluxqueue.webhook.patches import Operation

__all__ = ["Affinity", "Unpinnable", "node_of", "pin", "pinned_to", "read_affinity"]

_REQUIRED = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"{_REQUIRED}/nodeSelectorTerms"
_NODE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_INDEX = re.compile(r"[0-9]{1,9}")


class Unpinnable(ValueError):
    """The pod's allocation names no node for it; the message says why, and the pod is to be gated."""


class _Requirement(Part, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(Part, frozen=True):
    match_expressions: list[Any] | None = None
    match_fields: list[_Requirement] | None = None

    @property
    def matches_nothing(self) -> bool:
        return not self.match_expressions and not self.match_fields


class _NodeSelector(Part, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Part, frozen=True):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class Affinity(Part, frozen=True):
    """What pinning reads of a pod's affinity."""

    node_affinity: _NodeAffinity | None = None

    @property
    def required(self) -> _NodeSelector | None:
        """The required node selector, or None."""
        return self.node_affinity.required_during_scheduling_ignored_during_execution if self.node_affinity else None


_affinities: msgspec.json.Decoder[Affinity | None] = msgspec.json.Decoder(Affinity | None)


def read_affinity(raw: msgspec.Raw) -> Affinity | None:
    """Decode ``spec.affinity``.

    Parameters
    ----------
    raw
        Its JSON; empty where the field is missing.

    Returns
    -------
    Affinity or None
        None where there is none.

    Raises
    ------
    Unpinnable
        Nothing the API server would take; the pod is gated, and the API server says the rest.
    """
    if not bytes(raw):
        return None
    try:
        return _affinities.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unpinnable(f"spec.affinity cannot be read: {error}") from None


@functools.lru_cache(maxsize=32)
def _hosts(text: str) -> tuple[str, ...]:
    return tuple(decode(text))


def node_of(meta: ObjectMeta) -> str:
    """The node that a pod's allocation gives it.

    Parameters
    ----------
    meta
        The pod's metadata, with the hostlist of its Job and, for an Indexed Job, its completion index.

    Returns
    -------
    str
        A node name.

    Raises
    ------
    Unpinnable
        The list is missing or unreadable; the index is unreadable, beyond the list or has no node; or there are several nodes and no
        index to choose by.
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
            raise Unpinnable(f"annotation {names.NODES_ANNOTATION} names {len(hosts)} nodes and the pod has no completion index")
        index = 0
    elif _INDEX.fullmatch(written):
        index = int(written)
    else:
        raise Unpinnable(f"completion index {written!r} is not a number")
    if index >= len(hosts):
        raise Unpinnable(f"completion index {index} is beyond the {len(hosts)} nodes of annotation {names.NODES_ANNOTATION}")
    node = hosts[index]
    if node == names.NO_NODE:
        raise Unpinnable(f"completion index {index} has no node in annotation {names.NODES_ANNOTATION}: it had finished")
    if not _NODE_NAME.fullmatch(node):
        raise Unpinnable(f"annotation {names.NODES_ANNOTATION}: {node!r} cannot be the name of a node")
    return node


def pinned_to(meta: ObjectMeta, affinity: Affinity | None) -> str | None:
    """The node this pod has been pinned to by an earlier pass, or None.

    A pass leaves a list of one node and the pin in every term. That is what a repeated invocation finds, and it must not read the list
    again: the pod's index refers to the list of the whole Job.
    """
    text = meta.annotation(names.NODES_ANNOTATION)
    required = affinity.required if affinity else None
    terms = [term for term in (required.node_selector_terms if required else None) or () if not term.matches_nothing]
    if not text or not terms:
        return None
    pinned = all(_pins(term, text) for term in terms)
    return text if pinned else None


def pin(affinity: Affinity | None, node: str) -> list[Operation]:
    """Require this node in every term of the pod's node affinity.

    Parameters
    ----------
    affinity
        What the user asked for.
    node
        The node's name.

    Returns
    -------
    list of Operation
        Empty when every term has the pin already.

    Raises
    ------
    Unpinnable
        The terms that stand there match no node at all, so none can be required of them.
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
    for place, term in enumerate(terms):
        if term.matches_nothing or _pins(term, node):
            continue
        if term.match_fields:
            operations.append(patches.add(f"{_TERMS}/{place}/matchFields/-", requirement))
        else:
            operations.append(patches.add(f"{_TERMS}/{place}/matchFields", [requirement]))
    return operations


def _pins(term: _Term, node: str) -> bool:
    wanted = _Requirement(key="metadata.name", operator="In", values=[node])
    return any(field == wanted for field in term.match_fields or ())
