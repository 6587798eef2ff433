"""Builders of requests to Fluxion: jobspecs, nodes and graphs."""

from __future__ import annotations

import json
from typing import Any

from fluxqueue.fluxion.graph.files import write_jgf
from fluxqueue.fluxion.messages import GraphNodeSpec, Pool

__all__ = ["cluster_jgf", "make_jobspec", "make_node"]


def make_node(
    name: str, *, cpu: int = 4_000, memory: int = 8_192, pods: int = 10, **more: Any
) -> GraphNodeSpec:
    """A node as the queue defines it: cpu in pieces of 100 millicores, memory in pieces of 256 MiB."""
    return GraphNodeSpec(
        name, (Pool("cpu", cpu, 100), Pool("memory", memory, 256), Pool("pods", pods)), **more
    )


def make_jobspec(slots: int = 1, duration: float = 0, **amounts: int) -> str:
    """Slots with these amounts each, for example ``make_jobspec(4, cpu=1000)``; one core without amounts."""
    members = [{"type": kind, "count": count} for kind, count in (amounts or {"core": 1}).items()]
    return json.dumps(
        {
            "version": 9999,
            "resources": [{"type": "slot", "count": slots, "label": "task", "with": members}],
            "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": duration}},
        }
    )


def cluster_jgf(nodes: int = 2, cores: int = 4) -> str:
    """A flat cluster of whole cores, as a Go client sends it."""
    return write_jgf([GraphNodeSpec(f"node{number}", (Pool("core", cores),)) for number in range(nodes)])
