"""RFC 31 constraints: which nodes a job accepts. A constraint is compiled once and checked for many nodes.

A constraint is a map of exactly one operator. ``properties`` checks keys of the node's properties (``^x``: must not have x), ``hostlist``
its name, ``ranks`` its rank. ``and``, ``or`` and ``not`` combine constraints; ``not`` negates the conjunction of its list. RFC 31 has no
numbers; ``greater`` and ``less`` are ours: a property and the number with which its value is compared. An empty map and an empty list
accept everything. Only vertices of type node and storage_node are checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import orjson

from fluxqueue.api import hostlists
from fluxqueue.api.graphnames import taint_property
from fluxqueue.api.labelnumbers import label_number
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.documents import Document

__all__ = ["CONSTRAINED_TYPES", "Constraint", "ConstraintSubject", "InvalidConstraint", "NodeSubject", "read_constraint"]

CONSTRAINED_TYPES = frozenset({"node", "storage_node"})
_OPERATORS = ("properties", "hostlist", "ranks", "and", "or", "not", "greater", "less")
_PASSING = frozenset(taint_property(taint) for taint in PRESSURES.values())
_MAX_OPERANDS = 10_000
_MAX_HOSTS = 50_000
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})")
_MAX_RANK = (1 << 32) - 1


class InvalidConstraint(ValueError):
    """The value is no RFC 31 constraint; the message names the operator."""


class ConstraintSubject(Protocol):
    """The attributes that a constraint checks."""

    name: str
    rank: int
    properties: Mapping[str, str]


@dataclass(slots=True)
class NodeSubject:
    """A node outside of the graph, for a constraint to check. Ranks belong to the graph, so it has none."""

    name: str
    properties: Mapping[str, str]
    rank: int = -1


class _Term(Protocol):
    def accepts(self, subject: ConstraintSubject) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Properties:
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        properties = subject.properties
        return all(key in properties for key in self.wanted) and not any(key in properties for key in self.unwanted)


@dataclass(frozen=True, slots=True)
class _Hosts:
    names: frozenset[str]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return subject.name in self.names


@dataclass(frozen=True, slots=True)
class _Ranks:
    ranges: tuple[tuple[int, int], ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return any(low <= subject.rank <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class _Compared:
    """The value of a property is a number, and greater or less than another. Without a number it is neither."""

    key: str
    bound: int
    greater: bool

    def accepts(self, subject: ConstraintSubject) -> bool:
        number = label_number(subject.properties.get(self.key))
        if number is None:
            return False
        return number > self.bound if self.greater else number < self.bound


@dataclass(frozen=True, slots=True)
class _All:
    terms: tuple[_Term, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return all(term.accepts(subject) for term in self.terms)


@dataclass(frozen=True, slots=True)
class _Any:
    terms: tuple[_Term, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return not self.terms or any(term.accepts(subject) for term in self.terms)


@dataclass(frozen=True, slots=True)
class _Not:
    term: _Term

    def accepts(self, subject: ConstraintSubject) -> bool:
        return not self.term.accepts(subject)


@dataclass(slots=True)
class _Calm:
    """A node without its pressure taints."""

    name: str
    rank: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Lasting:
    term: _Term

    def accepts(self, subject: ConstraintSubject) -> bool:
        lasting = {key: value for key, value in subject.properties.items() if key not in _PASSING}
        return self.term.accepts(_Calm(subject.name, subject.rank, lasting))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled constraint and the text it came from."""

    term: _Term
    text: str

    @property
    def lasting(self) -> Constraint:
        """The same constraint without pressure taints: pressure passes by itself, so it never makes a request unsatisfiable."""
        return Constraint(_Lasting(self.term), f"lasting {self.text}") if any(taint in self.text for taint in _PASSING) else self

    def accepts(self, subject: ConstraintSubject) -> bool:
        """Return True if this node may be used."""
        return self.term.accepts(subject)


def read_constraint(value: Document) -> Constraint | None:
    """Compile a constraint.

    Parameters
    ----------
    value
        The document at ``attributes.system.constraints``.

    Returns
    -------
    Constraint or None
        None for an empty map: everything is accepted.

    Raises
    ------
    InvalidConstraint
        The message names the wrong operator.
    """
    if value is None or value == {}:
        return None
    return Constraint(_term(value), orjson.dumps(value).decode())


def _term(value: Document) -> _Term:
    if not isinstance(value, dict):
        raise InvalidConstraint(f"constraints: a map of one operator is needed, not {value!r:.40}")
    if not value:
        return _All(())
    if len(value) > 1:
        raise InvalidConstraint(f"constraints: one operator in a map is allowed, not {', '.join(sorted(value))}")
    ((operator, operands),) = value.items()
    if operator not in _OPERATORS:
        raise InvalidConstraint(f"constraints: {operator!r:.40} is no operator: use {', '.join(_OPERATORS)}")
    if not isinstance(operands, list):
        raise InvalidConstraint(f"constraints.{operator}: a list is needed, not {operands!r:.40}")
    if len(operands) > _MAX_OPERANDS:
        raise InvalidConstraint(f"constraints.{operator}: more than {_MAX_OPERANDS} operands are not read")
    if operator in ("and", "or", "not"):
        terms = tuple(_term(operand) for operand in operands)
        if operator == "or":
            return _Any(terms)
        return _Not(_All(terms)) if operator == "not" else _All(terms)
    texts: list[str] = []
    for operand in operands:
        if not isinstance(operand, str):
            raise InvalidConstraint(f"constraints.{operator}: {operand!r:.40} is not quoted text")
        texts.append(operand)
    if operator == "properties":
        return _properties(texts)
    if operator == "hostlist":
        return _hosts(texts)
    return _ranks(texts) if operator == "ranks" else _compared(operator, texts)


def _properties(texts: list[str]) -> _Term:
    for text in texts:
        if not text.removeprefix("^") or any(character in text.removeprefix("^") for character in "!&'\"`|()^"):
            raise InvalidConstraint(f"constraints.properties: {text!r:.80} is no property name")
    return _Properties(tuple(t for t in texts if not t.startswith("^")), tuple(t[1:] for t in texts if t.startswith("^")))


def _hosts(texts: list[str]) -> _Term:
    if not texts:
        return _All(())
    names: set[str] = set()
    for text in texts:
        if len(names) + sum(int(high) - int(low) for low, high in _RANGE.findall(text)) > _MAX_HOSTS:
            raise InvalidConstraint(f"constraints.hostlist: more than {_MAX_HOSTS} hosts are not read")
        try:
            names.update(hostlists.decode(text))
        except hostlists.InvalidHostlist as error:
            raise InvalidConstraint(f"constraints.hostlist: {error}") from None
    return _Hosts(frozenset(names))


def _ranks(texts: list[str]) -> _Term:
    if not texts:
        return _All(())
    ranges: list[tuple[int, int]] = []
    for text in texts:
        for part in text.strip("[] ").split(","):
            low, dash, high = part.strip().partition("-")
            if not (low.isdecimal() and (high.isdecimal() or not dash)) or max(len(low), len(high)) > 10:
                raise InvalidConstraint(f"constraints.ranks: {text!r:.80} is no idset: write 0-3,7")
            first, last = int(low), int(high or low)
            if first > last or last > _MAX_RANK:
                raise InvalidConstraint(f"constraints.ranks: {text!r:.80} is no idset: write 0-3,7")
            ranges.append((first, last))
    return _Ranks(tuple(ranges))


def _compared(operator: str, texts: list[str]) -> _Term:
    bound = label_number(texts[1]) if len(texts) == 2 and texts[0] else None
    if bound is None:
        raise InvalidConstraint(f"constraints.{operator}: a label and one whole number of 64 bits are needed, not {texts!r:.80}")
    return _Compared(texts[0], bound, operator == "greater")
