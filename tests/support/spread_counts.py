"""Counts pods in the domains of their spread constraints, after all of them are bound.

A pod that is pinned to a node can be bound although its constraint is violated: with
``nodeAffinityPolicy: Honor`` the scheduler counts only that node. So the result is counted here. While pods
are placed the least domain only grows, so a domain with a pod of the work never ends with more than
``maxSkew`` above the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from support.differential_worlds import DELETED, is_earlier, is_work, templates_of

from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.taints import effective_taints, tolerates
from fluxqueue.queue.noderules.node_selection import selects

__all__ = ["overfull"]

Json = dict[str, Any]
_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""Kubernetes gives it to a cordoned node; the document of a world does not have it."""


def overfull(documents: list[Json], pods: list[Json], earlier: Sequence[Json] = ()) -> str:
    """Return a sentence if bound pods of some work violate their own constraint; empty if they do not.

    Parameters
    ----------
    documents
        The world that they are in, with its nodes and other pods.
    pods
        The bound pods of the work.
    earlier
        Pods of what ran before it.
    """
    nodes = {each["metadata"]["name"]: each for each in documents if each["kind"] == "Node"}
    others = [
        each
        for each in documents
        if each["kind"] == "Pod" and not is_work(each) and not is_earlier(each) and _counts(each)
    ]
    templates = {each["metadata"]["name"]: templates_of(each)[0][0] for each in documents if is_work(each)}
    for pod in pods:
        template = templates.get(pod["metadata"]["name"]) or next(iter(templates.values()))
        spreads = [
            each
            for each in pod["spec"].get("topologySpreadConstraints", ())
            if each["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = {each["topologyKey"] for each in spreads}
        # The scheduler counts no node that lacks the label of any of the constraints.
        counted = {name: node for name, node in nodes.items() if keys <= node["metadata"]["labels"].keys()}
        for spread in spreads:
            if found := _overfull(
                spread, pod, msgspec.convert(template["spec"], PodSpec), [*others, *earlier, *pods], counted
            ):
                return found
    return ""


def _counts(pod: Json) -> bool:
    deleted = DELETED in (pod["metadata"].get("labels") or {})
    return not deleted and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _overfull(spread: Json, pod: Json, spec: PodSpec, pods: list[Json], nodes: dict[str, Json]) -> str:
    key, selector = spread["topologyKey"], spread.get("labelSelector")
    selector = _with_label_keys(selector, spread, pod)
    if not any((selector or {}).values()) or not _selects(selector, pod["metadata"].get("labels", {})):
        return ""  # an empty selector counts no pod
    admitted = {
        name: node["metadata"]["labels"] for name, node in nodes.items() if _admits(spread, node, spec)
    }
    domains = {labels[key] for labels in admitted.values() if key in labels}
    count = Counter(
        admitted[other["spec"]["nodeName"]].get(key)
        for other in pods
        if other["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and other["spec"]["nodeName"] in admitted
        and _selects(selector, other["metadata"].get("labels", {}))
    )
    here = admitted.get(pod["spec"]["nodeName"], {}).get(key)
    least = (
        0 if len(domains) < spread.get("minDomains", 1) else min((count[each] for each in domains), default=0)
    )
    if here in domains and count[here] - least > spread["maxSkew"]:
        return f"spread by {key} is violated: {dict(count)}, at least {least}, maxSkew {spread['maxSkew']}"
    return ""


def _admits(spread: Json, node: Json, spec: PodSpec) -> bool:
    if spread.get("nodeAffinityPolicy") != "Ignore" and not selects(
        spec, node["metadata"]["name"], node["metadata"]["labels"]
    ):
        return False
    if spread.get("nodeTaintsPolicy") != "Honor":
        return True
    read = msgspec.convert(node, Node)
    taints = [each for each in effective_taints(read) if each.effect != "PreferNoSchedule"]
    if read.spec.unschedulable:
        taints.append(_CORDONED)
    return all(any(tolerates(each, taint) for each in spec.tolerations or ()) for taint in taints)


def _with_label_keys(selector: Json | None, spread: Json, pod: Json) -> Json | None:
    labels = pod["metadata"].get("labels", {})
    own = {key: labels[key] for key in spread.get("matchLabelKeys") or () if key in labels}
    return selector and {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


def _selects(selector: Json | None, labels: Json) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Json, labels: Json) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels
