"""Allocates devices to the pods of a random world as kube-scheduler does:
pod by pod, all claims of a pod together, first devices first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.differential_worlds import is_work, templates_of

__all__ = ["Allocator"]

Json = dict[str, Any]
Taken = tuple[tuple[str, int], ...]
"""Name of a device and what of its memory, in GiB."""


@dataclass
class _Node:
    devices: list[Json]
    used: dict[str, int] = field(default_factory=dict)

    def has(self, device: Json, amount: int) -> bool:
        used = self.used.get(device["name"])
        return used is None or (
            bool(device.get("allowMultipleAllocations")) and used + amount <= _memory(device)
        )


class Allocator:
    """The devices of a world, and the claims of its work, which all its pods have.

    Attributes
    ----------
    shares
        True if its pods share a claim.
    """

    def __init__(self, documents: Sequence[Json]) -> None:
        self._slices = {
            each["spec"]["nodeName"]: each["spec"]["devices"]
            for each in documents
            if each["kind"] == "ResourceSlice"
        }
        specs = {
            (each["kind"], each["metadata"]["name"]): each["spec"].get("spec", each["spec"])
            for each in documents
            if each["kind"] in ("ResourceClaim", "ResourceClaimTemplate")
        }
        work = next(templates_of(each)[0][0]["spec"] for each in documents if is_work(each))
        self._claims: list[tuple[str, Json]] = []
        for each in work.get("resourceClaims", ()):
            name = each.get("resourceClaimName", "")
            key = (
                ("ResourceClaim", name)
                if name
                else ("ResourceClaimTemplate", each["resourceClaimTemplateName"])
            )
            self._claims.append((name, specs[key]["devices"]))
        self.shares = any(name for name, _ in self._claims)

    def fits(self, nodes: Sequence[str]) -> bool:
        """True if pods on these nodes, one after the other, all get their devices."""
        there = {name: _Node(devices) for name, devices in self._slices.items()}
        where: dict[str, str] = {}
        return all(self._allocate(there.setdefault(name, _Node([])), name, where) for name in nodes)

    def _allocate(self, node: _Node, name: str, where: dict[str, str]) -> bool:
        if any(where.get(claim, name) != name for claim, _ in self._claims if claim):
            return False
        wanted = [devices for claim, devices in self._claims if not claim or claim not in where]
        if not _take(node, wanted):
            return False
        where.update({claim: name for claim, _ in self._claims if claim})
        return True


def _take(node: _Node, wanted: Sequence[Json]) -> bool:
    if not wanted:
        return True
    for taken in _options(node, wanted[0]):
        before = dict(node.used)
        for device, amount in taken:
            node.used[device] = node.used.get(device, 0) + amount
        if _take(node, wanted[1:]):
            return True
        node.used = before
    return False


def _options(node: _Node, claim: Json) -> Iterator[Taken]:
    (request,) = claim["requests"]
    for exact in request.get("firstAvailable", [request.get("exactly")]):
        amount = _gib(exact.get("capacity", {}).get("requests", {}).get("memory", "0Gi"))
        selected = [
            each
            for each in node.devices
            if "selectors" not in exact or each["attributes"]["model"]["string"] == "large"
        ]
        free = [each for each in selected if node.has(each, amount or _memory(each))]
        if exact.get("allocationMode") == "All":
            if selected and len(free) == len(selected):
                yield tuple((each["name"], _memory(each)) for each in free)
            continue
        for some in itertools.combinations(free, exact["count"]):
            if not claim.get("constraints") or len({_root(each) for each in some}) == 1:
                yield tuple((each["name"], amount or _memory(each)) for each in some)


def _memory(device: Mapping[str, Any]) -> int:
    return _gib(device["capacity"]["memory"]["value"])


def _root(device: Mapping[str, Any]) -> str:
    return str(device["attributes"]["root"]["string"])


def _gib(quantity: str) -> int:
    return int(quantity.removesuffix("Gi"))
