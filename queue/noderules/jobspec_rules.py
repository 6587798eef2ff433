"""Rules about other pods in jobspecs: reads the rules that are stored,
and writes the nodes that they admit at present.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from fluxqueue.fluxion.match.domains import write_domains
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT, slots_in
from fluxqueue.queue.model.remembered import remembered
from fluxqueue.queue.model.topology_levels import below_levels
from fluxqueue.queue.noderules.admitted_nodes import AdmittedNodes
from fluxqueue.queue.noderules.pod_rules import PodRules

__all__ = ["nodes_of_pods", "rule_pods", "rules_in", "with_admitted_nodes"]

_KEY = "podRules"


def rules_in(jobspec: str) -> PodRules | None:
    """Return the rules that a jobspec carries; None if it has none."""
    return _rules_in(jobspec) if f'"{_KEY}"' in jobspec else None


@remembered(4_096)
def _rules_in(jobspec: str) -> PodRules | None:
    rules = orjson.loads(jobspec)["attributes"]["system"].get(_KEY)
    return msgspec.convert(rules, PodRules) if rules else None


@remembered(4_096)
def rule_pods(jobspec: str) -> tuple[int, bool]:
    """Return how many pods of a jobspec its rules apply to (not a services pod),
    and whether it asks for one node per pod.
    """
    pods = sum(count for label, count, _ in slots_in(jobspec) if label != SERVICES_SLOT)
    parts, _ = below_levels(orjson.loads(jobspec)["resources"])
    return pods, parts[0]["type"] == "node"


def with_admitted_nodes(jobspec: str, ruling: AdmittedNodes) -> str:
    """Return the request as it is matched now, on the nodes that its rules admit."""
    spec: dict[str, Any] = orjson.loads(jobspec)
    system = spec["attributes"]["system"]
    system.pop(_KEY, None)
    if ruling.constraint is not None:
        own = system.get("constraints")
        system["constraints"] = {"and": [own, ruling.constraint]} if own else ruling.constraint
    if ruling.domains:
        system["domains"] = [*system.get("domains", ()), *write_domains(ruling.domains)]
    return orjson.dumps(spec).decode()


def nodes_of_pods(shares: Iterable[NodeShare]) -> list[str]:
    """Return the node of each pod that the rules apply to."""
    return [
        share.node
        for share in shares
        for label, count in share.slots.items()
        if label != SERVICES_SLOT
        for _ in range(count)
    ]
