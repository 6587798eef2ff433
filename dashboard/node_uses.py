"""What a job has on each of its nodes, from its jobspec and its hostlist:
entry i of the list is the node of rank i.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fluxqueue.api import hostlists, names
from fluxqueue.queue.model.jobspecs import slots_in

__all__ = ["NodeUse", "node_uses", "requested"]


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Pods on one node, and amounts in the graph's units (millicores, MiB, pieces)."""

    pods: int = 0
    amounts: Mapping[str, int] = field(default_factory=dict)


def node_uses(jobspec: str, hostlist: str) -> dict[str, NodeUse]:
    """Return what a job has by node.

    Parameters
    ----------
    jobspec
        As the FluxJob has it. From one that cannot be read no amounts are known.
    hostlist
        RFC 29; one that cannot be read has no nodes.
    """
    try:
        hosts = hostlists.decode(hostlist)
    except hostlists.InvalidHostlist:
        return {}
    slots = _slots(jobspec)
    pods: Counter[tuple[str, int]] = Counter()
    limits = _limits(slots)
    for rank, host in enumerate(hosts):
        if host != names.NO_NODE:
            pods[
                host, next((number for number, limit in enumerate(limits) if rank < limit), len(limits) - 1)
            ] += 1
    return _summed(pods, [members for _, _, members in slots])


def requested(jobspec: str) -> Mapping[str, int]:
    """Return what a job asks for in all, in the graph's units; nothing of a jobspec that cannot be read."""
    total: Counter[str] = Counter()
    for _, count, members in _slots(jobspec):
        for name, amount in members.items():
            total[name] += amount * count
    return total


def _slots(jobspec: str) -> list[tuple[str, int, Mapping[str, int]]]:
    try:
        return slots_in(jobspec) if jobspec else []
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return []


def _limits(slots: list[tuple[str, int, Mapping[str, int]]]) -> list[int]:
    """Return, for each kind of slot, the first rank that is behind it."""
    limits: list[int] = []
    for _, count, _ in slots:
        limits.append((limits[-1] if limits else 0) + count)
    return limits


def _summed(pods: Mapping[tuple[str, int], int], sizes: list[Mapping[str, Any]]) -> dict[str, NodeUse]:
    counts: Counter[str] = Counter()
    amounts: dict[str, Counter[str]] = {}
    for (host, kind), count in pods.items():
        counts[host] += count
        if kind >= 0:
            total = amounts.setdefault(host, Counter())
            for name, amount in sizes[kind].items():
                total[name] += int(amount) * count
    return {host: NodeUse(count, amounts.get(host, {})) for host, count in counts.items()}
