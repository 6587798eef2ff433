"""Levels of the topology in a jobspec: written above its slots, and read through.

A required level is ``{"type": "rack", "count": 1, "label": "group"}`` above the slots, a preferred one has
the label ``preferred``, and slices are a level whose count is the number of slices
(`fluxqueue.fluxion.match.levels`). Rules about nodes are rules by domains
(`fluxqueue.fluxion.match.domains`), in which the empty key means each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fluxqueue.api.requests import InvalidRequest
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.fluxion.match.levels import GROUP, PREFERRED

__all__ = [
    "below_levels",
    "divided",
    "levels_asked_for",
    "most_per_node",
    "node_rules_of",
    "required_level",
    "with_levels",
]

Part = Mapping[str, Any]


def divided(
    request: TopologyRequest, pods: int, *, sizes: int, services: bool
) -> tuple[TopologyRequest, int]:
    """Return the request as so many pods can have it, and the number of their slices (0: none).

    Pods that cannot be divided into optional slices prefer their level.

    Raises
    ------
    InvalidRequest
        The pods cannot be divided into slices that are not optional.
    """
    size = request.slice_size
    if not size or (sizes == 1 and not services and pods % size == 0):
        return request, pods // size if size else 0
    if request.optional_slices:
        return replace(
            request, preferred=request.preferred or request.slice_level, slice_level="", slice_size=0
        ), 0
    slices = f"slices of {size} pods below one {request.slice_level}"
    if sizes > 1 or services:
        which = "its services pod belongs to none" if services else "its pods have different sizes"
        raise InvalidRequest(
            f"it asks for {slices}, and {which}: ask for a required or preferred topology instead"
        )
    raise InvalidRequest(
        f"it asks for {slices}, and {pods} pods are no multiple of {size}: "
        "change the size of the slices, or its pods"
    )


def with_levels(parts: Sequence[Part], request: TopologyRequest, slices: int) -> list[Part]:
    """Return the resources of a jobspec below the levels that a workload asks for.

    Parameters
    ----------
    parts
        The resources, those of one slice if there are slices.
    request
        The levels.
    slices
        Number of slices; 0: there are none.
    """
    below = [*parts]
    if slices:
        below = [_level(request.slice_level, slices, GROUP, below)]
    if request.preferred and request.preferred != request.required:
        below = [_level(request.preferred, 1, PREFERRED, below)]
    return [_level(request.required, 1, GROUP, below)] if request.required else below


def _level(kind: str, count: int, label: str, below: Sequence[Part]) -> Part:
    return {"type": kind, "count": count, "label": label, "with": [*below]}


def node_rules_of(request: TopologyRequest) -> list[dict[str, Any]]:
    """Return the rules by domains: for how pods share nodes, and for the label by which they are together."""
    rules: list[dict[str, Any]] = [{"whole": True}] if request.exclusive else []
    rules += [{"together": [request.together]}] if request.together else []
    return [*rules, {"key": "", "most": request.pods_per_node}] if request.pods_per_node else rules


def most_per_node(rules: Sequence[Mapping[str, Any]]) -> int:
    """Return the most pods of a workload on one node, by its rules by domains; 0: any number."""
    return next((int(rule["most"]) for rule in rules if rule.get("key") == "" and "most" in rule), 0)


def below_levels(resources: Sequence[Part]) -> tuple[Sequence[Part], int]:
    """Return the resources below the labelled levels of a jobspec, and how many times they are requested."""
    times = 1
    while (
        len(resources) == 1
        and resources[0].get("label") in (GROUP, PREFERRED)
        and resources[0].get("type") != "slot"
    ):
        times *= int(resources[0]["count"])
        resources = resources[0]["with"]
    return resources, times


def levels_asked_for(resources: Sequence[Part]) -> list[str]:
    """Return the labelled levels of a jobspec, from the top down."""
    levels: list[str] = []
    while (
        len(resources) == 1
        and resources[0].get("label") in (GROUP, PREFERRED)
        and resources[0].get("type") != "slot"
    ):
        levels.append(str(resources[0]["type"]))
        resources = resources[0]["with"]
    return levels


def required_level(resources: Sequence[Part]) -> str:
    """Return the level below one vertex of which everything must be; empty if there is none."""
    top = resources[0] if len(resources) == 1 else {}
    return (
        str(top["type"]) if top.get("label") == GROUP and top["count"] == 1 and top["type"] != "slot" else ""
    )
