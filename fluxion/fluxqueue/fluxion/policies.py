"""Match policies: which of the candidates that fit are taken.

All but two give each vertex a score that depends on ids alone and take the lowest or the highest. ``locality`` and ``variation`` have
rules of their own. Names and the free form ``policy=high node_centric=true ...`` are those of the original, case-sensitive.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Order", "Policy", "UnknownPolicy", "read_policy"]


class UnknownPolicy(ValueError):
    """No such policy."""


class Order(enum.Enum):
    """How candidates are ordered."""

    LOW = "low"
    HIGH = "high"
    LOCALITY = "locality"
    VARIATION = "variation"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy and its traits.

    Attributes
    ----------
    node_centric
        Scores carry the node's id, so vertices of one node stay together.
    node_exclusive
        A node on the way is taken whole.
    stop_on_first
        Children are explored until enough has been found, untouched ones first; choice is among those found.
    """

    name: str
    order: Order
    node_centric: bool = False
    node_exclusive: bool = False
    stop_on_first: bool = False

    @property
    def descending(self) -> bool:
        """Whether high scores come first."""
        return self.order in (Order.HIGH, Order.LOCALITY)


_NAMED = {
    policy.name: policy
    for policy in (
        Policy("low", Order.LOW),
        Policy("high", Order.HIGH),
        Policy("lonode", Order.LOW, node_centric=True),
        Policy("hinode", Order.HIGH, node_centric=True),
        Policy("lonodex", Order.LOW, node_centric=True, node_exclusive=True),
        Policy("hinodex", Order.HIGH, node_centric=True, node_exclusive=True),
        Policy("first", Order.HIGH, node_centric=True, stop_on_first=True),
        Policy("firstnodex", Order.HIGH, node_centric=True, node_exclusive=True, stop_on_first=True),
        Policy("locality", Order.LOCALITY),
        Policy("variation", Order.VARIATION),
    )
}
_OPTIONS = {"node_centric": "node_centric", "node_exclusive": "node_exclusive", "stop_on_1_matches": "stop_on_first"}


def read_policy(text: str) -> Policy:
    """Read a policy.

    Parameters
    ----------
    text
        A name, or ``policy=low|high`` with options ``node_centric``, ``node_exclusive``, ``stop_on_1_matches`` set to true or false;
        empty means ``first``.

    Raises
    ------
    UnknownPolicy
        With what would have been understood.
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
                f"policy {text!r:.80}: {part!r:.40} is not understood: use {', '.join(_NAMED)} or policy=low|high with options"
            )
        if value not in (("low", "high") if key == "policy" else ("true", "false")):
            raise UnknownPolicy(f"policy {text!r:.80}: {value!r:.40} is no value of {key}")
        wanted[key] = value
    if "policy" not in wanted:
        raise UnknownPolicy(f"policy {text!r:.80}: policy=low or policy=high is needed")
    flags = {_OPTIONS[key]: value == "true" for key, value in wanted.items() if key != "policy"}
    return Policy(text, Order(wanted["policy"]), **flags)
