"""What a workload asks of the topology, in words, read from the jobspec of its FluxJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["topology_text"]


def topology_text(resources: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]]) -> str:
    """Return the levels and the rules about nodes of a jobspec in words; empty if it has none.

    Parameters
    ----------
    resources, rules
        ``resources`` and ``attributes.system.domains`` of the jobspec.
    """
    words: list[str] = []
    while (
        len(resources) == 1
        and resources[0].get("label") in ("group", "preferred")
        and resources[0].get("type") != "slot"
    ):
        level, below = resources[0], resources[0].get("with") or []
        if level["label"] == "preferred":
            words.append(f"as low as possible, from one {level['type']} up")
        elif level.get("count") == 1:
            words.append(f"all below one {level['type']}")
        else:
            words.append(f"{level['count']} groups of {_size(below)}, each below one {level['type']}")
        resources = below
    words += ["no other work on its nodes"] if {"whole": True} in rules else []
    words += [
        f"at most {rule['most']} pod{'' if rule['most'] == 1 else 's'} on a node"
        for rule in rules
        if rule.get("key") == "" and "most" in rule
    ]
    return "; ".join(words)


def _size(below: Sequence[Mapping[str, Any]]) -> int:
    """Return the pods of a group."""
    return sum(int(part.get("count", 1)) for part in below)
