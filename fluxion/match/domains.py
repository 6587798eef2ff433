"""Rules for the slots of one request by domains of a node property: all in one domain, a maximum in each, or
evenly.

They are an extension of the jobspec (``attributes.system.domains``), for affinity and topology spread among
the pods of one gang. A domain is all nodes with one value of a property (a zone, a rack, a host); with the
empty key each node is a domain. There are five forms:

- ``{"together": [key, ...]}``: all slots in one domain of each key;
- ``{"key": key, "most": n}``: at most n slots in a domain, any number on nodes without the property;
- ``{"whole": true}``: every node with a slot is taken whole, and no other job has anything on it;
- ``{"once": {type: n, ...}}``: every node with a slot gives these amounts once, however many slots it has;
- ``{"key": key, "skew": s, "counts": {value: n, ...}}``: including the existing pods (``counts`` lists every
  domain, also the empty ones), no domain that gets a slot ends with more than s above the least filled one;
  ``"zero": true`` measures from 0 instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.documents import Document

__all__ = [
    "AtMost",
    "DomainOf",
    "DomainRule",
    "InvalidDomains",
    "Once",
    "Skew",
    "Together",
    "WholeNodes",
    "read_domains",
    "satisfies_rules",
    "write_domains",
]

_MAX_RULES = 64
_MAX_DOMAINS = 50_000
_MAX_NUMBER = (1 << 32) - 1

DomainOf = Callable[[str], str | None]
"""The value of a node's property, by key."""


class InvalidDomains(ValueError):
    """The value is not a list of domain rules; the message names the key."""


@dataclass(frozen=True, slots=True)
class Together:
    """All slots in one domain of each key."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AtMost:
    """A maximum of slots in each domain."""

    key: str
    most: int


@dataclass(frozen=True, slots=True)
class Skew:
    """A maximum of the difference between domains.

    Attributes
    ----------
    counts
        Number of pods that each domain holds already.
    zero
        Measure from 0 instead of from the least filled domain.
    """

    key: str
    skew: int
    counts: tuple[tuple[str, int], ...]
    zero: bool = False


@dataclass(frozen=True, slots=True)
class WholeNodes:
    """Every node with a slot is taken whole."""


@dataclass(frozen=True, slots=True)
class Once:
    """Every node with a slot gives these amounts once, by type:
    what its slots share there, such as an attached volume.
    """

    amounts: tuple[tuple[str, int], ...]


DomainRule = Together | AtMost | Skew | WholeNodes | Once


def read_domains(value: Document) -> tuple[DomainRule, ...]:
    """Read ``attributes.system.domains``.

    Raises
    ------
    InvalidDomains
        The message names what is wrong.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_RULES:
        raise InvalidDomains(f"domains: a list of at most {_MAX_RULES} rules is needed")
    return tuple(_read(rule, f"domains[{number}]") for number, rule in enumerate(value))


def _read(rule: Document, where: str) -> DomainRule:
    if not isinstance(rule, dict):
        raise InvalidDomains(f"{where}: a map is needed")
    keys, key = rule.get("together"), rule.get("key")
    if set(rule) == {"together"} and isinstance(keys, list) and keys:
        return Together(tuple(str(each) for each in keys))
    if set(rule) == {"key", "most"} and isinstance(key, str):
        return AtMost(key, _number(rule["most"], f"{where}.most", least=1))
    if rule == {"whole": True}:
        return WholeNodes()
    amounts = rule.get("once")
    if set(rule) == {"once"} and isinstance(amounts, dict) and 0 < len(amounts) <= _MAX_RULES:
        return Once(
            tuple(
                (str(kind), _number(amount, f"{where}.once", least=1))
                for kind, amount in sorted(amounts.items())
            )
        )
    counts = rule.get("counts")
    if (
        {"key", "skew", "counts"} <= set(rule) <= {"key", "skew", "counts", "zero"}
        and isinstance(key, str)
        and isinstance(counts, dict)
    ):
        if len(counts) > _MAX_DOMAINS:
            raise InvalidDomains(f"{where}.counts: more than {_MAX_DOMAINS} domains are not read")
        read = tuple((str(name), _number(number, f"{where}.counts")) for name, number in counts.items())
        return Skew(key, _number(rule["skew"], f"{where}.skew", least=1), read, rule.get("zero") is True)
    raise InvalidDomains(
        f"{where}: either together, or once, or key and most, or key, skew and counts are needed"
    )


def _number(value: Document, where: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_NUMBER:
        raise InvalidDomains(f"{where}: a whole number from {least} on is needed, not {value!r:.40}")
    return value


def write_domains(rules: Sequence[DomainRule]) -> list[dict[str, object]]:
    """Return the rules in the form of the jobspec."""
    return [_write(rule) for rule in rules]


def _write(rule: DomainRule) -> dict[str, object]:
    match rule:
        case Together():
            return {"together": list(rule.keys)}
        case WholeNodes():
            return {"whole": True}
        case Once():
            return {"once": dict(rule.amounts)}
        case AtMost():
            return {"key": rule.key, "most": rule.most}
        case Skew():
            document: dict[str, object] = {"key": rule.key, "skew": rule.skew, "counts": dict(rule.counts)}
            return document | ({"zero": True} if rule.zero else {})


def satisfies_rules(rules: Sequence[DomainRule], places: Sequence[DomainOf]) -> bool:
    """Return True if slots keep the rules.

    Parameters
    ----------
    places
        For the node of each slot, a function that returns the node's domain of a key.
    """
    return all(_satisfies(rule, places) for rule in rules)


def _satisfies(rule: DomainRule, places: Sequence[DomainOf]) -> bool:
    match rule:
        case Together():
            return all(
                len(values := {domain(key) for domain in places}) <= 1 and None not in values
                for key in rule.keys
            )
        case WholeNodes() | Once():
            return True  # it says nothing about which nodes
        case AtMost():
            taken = Counter(value for domain in places if (value := domain(rule.key)) is not None)
            return all(count <= rule.most for count in taken.values())
        case Skew():
            filled = dict(rule.counts)
            domains = [domain(rule.key) for domain in places]
            for value in domains:
                if value is None:
                    return False
                filled[value] = filled.get(value, 0) + 1
            least = 0 if rule.zero else min((filled[name] for name, _ in rule.counts), default=0)
            return all(filled[value] <= least + rule.skew for value in domains if value is not None)
