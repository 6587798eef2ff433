"""Match policies by name: the traits that decide which candidates are taken.

This module reads policies and orders nothing. `fluxqueue.fluxion.match.traverser` sorts the candidates of a
traversal by these traits; `fluxqueue.fluxion.match.shortcuts` orders nodes by them where no traversal is
needed. All policies but two give each vertex a score that depends on ids alone, and take the lowest or the
highest. ``locality`` and ``variation`` have rules of their own. Names and the free form
``policy=high node_centric=true ...`` are flux-sched's, and case-sensitive.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["CandidateOrder", "MatchPolicy", "UnknownPolicy", "read_policy"]


class UnknownPolicy(ValueError):
    """There is no such match policy."""


class CandidateOrder(enum.Enum):
    """The order of candidates."""

    LOW = "low"
    HIGH = "high"
    LOCALITY = "locality"
    VARIATION = "variation"


@dataclass(frozen=True, slots=True)
class MatchPolicy:
    """A match policy: its name and its traits.

    Attributes
    ----------
    node_centric
        Scores contain the node's id, so vertices of one node stay together.
    node_exclusive
        A node that a match passes is taken whole.
    stop_on_first
        Children are explored until enough are found, never used ones first. The choice is among those found.
    """

    name: str
    order: CandidateOrder
    node_centric: bool = False
    node_exclusive: bool = False
    stop_on_first: bool = False

    @property
    def descending(self) -> bool:
        """True if high scores come first."""
        return self.order in (CandidateOrder.HIGH, CandidateOrder.LOCALITY)


_NAMED = {
    policy.name: policy
    for policy in (
        MatchPolicy("low", CandidateOrder.LOW),
        MatchPolicy("high", CandidateOrder.HIGH),
        MatchPolicy("lonode", CandidateOrder.LOW, node_centric=True),
        MatchPolicy("hinode", CandidateOrder.HIGH, node_centric=True),
        MatchPolicy("lonodex", CandidateOrder.LOW, node_centric=True, node_exclusive=True),
        MatchPolicy("hinodex", CandidateOrder.HIGH, node_centric=True, node_exclusive=True),
        MatchPolicy("first", CandidateOrder.HIGH, node_centric=True, stop_on_first=True),
        MatchPolicy(
            "firstnodex", CandidateOrder.HIGH, node_centric=True, node_exclusive=True, stop_on_first=True
        ),
        MatchPolicy("locality", CandidateOrder.LOCALITY),
        MatchPolicy("variation", CandidateOrder.VARIATION),
    )
}
_OPTIONS = {
    "node_centric": "node_centric",
    "node_exclusive": "node_exclusive",
    "stop_on_1_matches": "stop_on_first",
}


def read_policy(text: str) -> MatchPolicy:
    """Read a policy.

    Parameters
    ----------
    text
        A name, or ``policy=low|high`` with options ``node_centric``, ``node_exclusive``,
        ``stop_on_1_matches`` set to true or false; empty means ``first``.

    Raises
    ------
    UnknownPolicy
        The message lists what can be read.
    """
    if not text:
        return _NAMED["first"]
    if text in _NAMED:
        return _NAMED[text]
    wanted: dict[str, str] = {}
    for part in text.split(" "):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if not equals or key in wanted or (key != "policy" and key not in _OPTIONS):
            raise UnknownPolicy(
                f"policy {text!r:.80}: {part!r:.40} is not understood: "
                f"use {', '.join(_NAMED)} or policy=low|high with options"
            )
        if value not in (("low", "high") if key == "policy" else ("true", "false")):
            raise UnknownPolicy(f"policy {text!r:.80}: {value!r:.40} is no value of {key}")
        wanted[key] = value
    if "policy" not in wanted:
        raise UnknownPolicy(f"policy {text!r:.80}: policy=low or policy=high is needed")
    flags = {_OPTIONS[key]: value == "true" for key, value in wanted.items() if key != "policy"}
    return MatchPolicy(text, CandidateOrder(wanted["policy"]), **flags)
