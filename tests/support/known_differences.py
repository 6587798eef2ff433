"""Where the queue is known to be stricter than kube-scheduler: docs/behaviour.md lists each.
Such a world is not held against the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
from support.differential_earlier import PREEMPTS, RESIZED
from support.differential_worlds import World, is_earlier, is_work, pods_of, templates_of

from fluxqueue.api import names
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.requests import pod_usage, sum_requests
from fluxqueue.queue.noderules.pod_rules import Term, repelling_terms

__all__ = ["is_gang", "known_difference"]

Json = dict[str, Any]
INEXPRESSIBLE = ("selects some of its own pods and not others", "have different rules")
"""Messages of `InvalidRequest` about rules of a gang that the match cannot express."""
RULED_OUT = "leave no place for it as pods lie now"
"""Words for work that rules about other pods keep off all nodes."""
STEP_BY_STEP = "rules about other pods leave no place for it as pods lie now"
"""Message of a gang for which no arrangement was found."""


def known_difference(world: World, message: str = "") -> str:
    """Return why the queue may let work wait that kube-scheduler would start, in a few words; empty if there
    is no known reason.

    Parameters
    ----------
    world
        The world.
    message
        What the queue says.
    """
    documents = world.marked("w")
    return next(_found(documents, message), "")


def _found(documents: list[Json], message: str) -> Iterator[str]:
    if any(words in message for words in INEXPRESSIBLE):
        yield "rules that the match cannot express"
    templates = [template for each in documents if is_work(each) for template, _ in templates_of(each)]
    specs = [each["spec"] for each in templates]
    if STEP_BY_STEP in message and pods_of(documents) > 1 and max(map(_rules, specs)) > 1:
        yield "a gang with several rules is matched step by step"
    others = [each for each in documents if each["kind"] == "Pod" and not is_work(each)]
    limited = any(each["kind"] == "CSINode" for each in documents)
    apart = any(
        is_work(each) and each["kind"] in ("Deployment", "StatefulSet") and not is_gang(each)
        for each in documents
    )
    if (
        limited
        and (shared := _claims(specs))
        and (apart or not shared.isdisjoint(_claims(each["spec"] for each in others)))
    ):
        yield (
            "a claim of several works or other pods on a node counts once for each against the limit of a "
            "driver"
        )
    nodes = [each for each in documents if each["kind"] == "Node"]
    if any(node["spec"].get("unschedulable") for node in nodes) and any(map(_tolerates_cordon, specs)):
        yield "a cordoned node takes no pod, also none that tolerates it"
    if any(_overbooked(node, others) for node in nodes):
        yield "a node on which more is used than it has takes no pod"
    if any(PREEMPTS in (each["metadata"].get("annotations") or {}) for each in documents) and (
        RULED_OUT in message
    ):
        yield "nothing is preempted for work that rules about other pods keep off all nodes"
    if any(map(_shrunk, documents)):
        yield "a slot keeps its size if its pod is made smaller"
    if _repelled_in_part(documents, others):
        yield "a placed pod that repels some pods of a group keeps all of them off its nodes"


def is_gang(owner: Json) -> bool:
    """True if the pods of a Deployment or StatefulSet start together."""
    return names.GANG_ANNOTATION in owner["spec"]["template"]["metadata"].get("annotations", {})


def _claims(specs: Iterable[Json]) -> set[str]:
    return {
        each["persistentVolumeClaim"]["claimName"]
        for spec in specs
        for each in spec.get("volumes", ())
        if "persistentVolumeClaim" in each
    }


def _rules(spec: Json) -> int:
    """Return how many required rules about other pods a pod has."""
    affinity = spec.get("affinity", {})
    kinds = [
        affinity.get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
        for kind in ("podAffinity", "podAntiAffinity")
    ]
    return sum(map(len, kinds)) + len(spec.get("topologySpreadConstraints", ()))


def _shrunk(earlier: Json) -> bool:
    """True for work that runs before, and whose pods are made smaller in place."""
    if not is_earlier(earlier):
        return False
    ((template, _),) = templates_of(earlier)
    (container,) = template["spec"]["containers"]
    wanted = template["metadata"]["annotations"].get(RESIZED)
    return wanted is not None and parse_quantity(wanted) < parse_quantity(
        container["resources"]["requests"]["cpu"]
    )


def _tolerates_cordon(spec: Json) -> bool:
    return any(
        each.get("key", "node.kubernetes.io/unschedulable") == "node.kubernetes.io/unschedulable"
        for each in spec.get("tolerations", ())
    )


def _overbooked(node: Json, pods: list[Json]) -> bool:
    here = [each for each in pods if each["spec"].get("nodeName") == node["metadata"]["name"]]
    used = sum_requests(
        [
            *(pod_usage(msgspec.convert(each, Pod)) for each in here),
            {"pods": Decimal(len(here))},
        ]
    )
    return any(
        amount > parse_quantity(node["status"]["allocatable"].get(name, "0")) for name, amount in used.items()
    )


def _repelled_in_part(documents: list[Json], placed: list[Json]) -> bool:
    """True if a required anti-affinity of some placed pod selects some pods of a group and not others."""
    members = [
        {"namespace": each["metadata"]["namespace"], **template["metadata"]}
        for each in documents
        if is_work(each)
        for template, _ in templates_of(each)
    ]
    namespaces = {
        each["metadata"]["name"]: each["metadata"].get("labels", {})
        for each in documents
        if each["kind"] == "Namespace"
    }
    terms: list[Term] = []
    for each in placed:
        meta = each["metadata"]
        terms += repelling_terms(
            msgspec.convert(each["spec"], PodSpec), meta["namespace"], meta.get("labels") or {}
        )

    def selected(term: Term) -> set[bool]:
        return {
            term.selects(each["namespace"], namespaces.get(each["namespace"], {}), each.get("labels") or {})
            for each in members
        }

    return any(len(selected(term)) > 1 for term in terms)
