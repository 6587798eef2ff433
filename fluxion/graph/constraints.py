"""RFC 31 constraints: which nodes a job accepts. A constraint is compiled once and checked for many nodes.

A constraint is a map of exactly one operator. ``properties`` checks keys of the node's properties (``^x``:
must not have x), ``hostlist`` its name, ``ranks`` its rank. ``and``, ``or`` and ``not`` combine constraints;
``not`` negates the conjunction of its list. RFC 31 has no numbers; ``greater`` and ``less`` are ours: a
property and the number with which its value is compared. ``in`` is a property and the values of which it has
one, which is shorter than an ``or``. ``tolerates`` is ours too: the node has no taint that keeps pods away
but those that are tolerated; it is checked against the taints that the node has at the time
(`fluxqueue.api.taints` has the texts, record 0043 the reasons). An empty map and an empty list accept
everything, but nothing tolerated is a rule. Only vertices of type node and storage_node are checked.

A user may write hundreds of terms, and each costs a microsecond and more for one node. So for all nodes of a
graph, each term is evaluated for all of them at once (`Constraint.accepted`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import orjson

from fluxqueue.api import hostlists
from fluxqueue.api.graphnames import taint_property, taints_in
from fluxqueue.api.labelnumbers import label_number
from fluxqueue.api.nodes import Taint
from fluxqueue.api.pods import Toleration
from fluxqueue.api.taints import HARD_EFFECTS, PRESSURES, read_toleration, tolerates
from fluxqueue.fluxion.documents import Document

__all__ = [
    "CONSTRAINED_TYPES",
    "Constraint",
    "ConstraintSubject",
    "InvalidConstraint",
    "NodeSubject",
    "in_rfc31",
    "read_constraint",
]

CONSTRAINED_TYPES = frozenset({"node", "storage_node"})
_TOLERATES = "tolerates"
_OPERATORS = ("properties", "hostlist", "ranks", "and", "or", "not", "greater", "less", "in", _TOLERATES)
_PRESSURE = tuple(Toleration(key=taint.key, operator="Exists") for taint in PRESSURES.values())
_MOST_NAMED = 20
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


_Mask = npt.NDArray[np.bool_]
_Subjects = Collection[ConstraintSubject]


def _mask(verdicts: Iterable[bool], subjects: _Subjects) -> _Mask:
    return np.fromiter(verdicts, dtype=np.bool_, count=len(subjects))


class _Term(Protocol):
    __slots__ = ()

    def accepts(self, subject: ConstraintSubject) -> bool: ...

    def accepted(self, subjects: _Subjects) -> _Mask:
        """Return for each of many subjects what `accepts` does; by default for one after the other."""
        return _mask(map(self.accepts, subjects), subjects)


@dataclass(frozen=True, slots=True)
class _Properties:
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        properties = subject.properties
        return all(key in properties for key in self.wanted) and not any(
            key in properties for key in self.unwanted
        )

    def accepted(self, subjects: _Subjects) -> _Mask:
        mask: _Mask = np.ones(len(subjects), dtype=np.bool_)
        for key in self.wanted:
            mask &= _mask((key in each.properties for each in subjects), subjects)
        for key in self.unwanted:
            mask &= _mask((key not in each.properties for each in subjects), subjects)
        return mask


@dataclass(frozen=True, slots=True)
class _Hosts(_Term):
    names: frozenset[str]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return subject.name in self.names


@dataclass(frozen=True, slots=True)
class _Ranks(_Term):
    ranges: tuple[tuple[int, int], ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return any(low <= subject.rank <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class _Compared:
    """The value of a property is a number, and greater or less than another.
    Without a number it is neither.
    """

    key: str
    bound: int
    greater: bool

    def accepts(self, subject: ConstraintSubject) -> bool:
        return self.accepts_text(subject.properties.get(self.key))

    def accepts_text(self, text: str | None) -> bool:
        number = label_number(text)
        if number is None:
            return False
        return number > self.bound if self.greater else number < self.bound

    def accepted(self, subjects: _Subjects) -> _Mask:
        texts = [each.properties.get(self.key) for each in subjects]
        fitting = {text for text in set(texts) if self.accepts_text(text)}
        return _mask((text in fitting for text in texts), subjects)


@dataclass(frozen=True, slots=True)
class _All:
    terms: tuple[_Term, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return all(term.accepts(subject) for term in self.terms)

    def accepted(self, subjects: _Subjects) -> _Mask:
        mask: _Mask = np.ones(len(subjects), dtype=np.bool_)
        for term in self.terms:
            mask &= term.accepted(subjects)
        return mask


@dataclass(frozen=True, slots=True)
class _Any:
    terms: tuple[_Term, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return not self.terms or any(term.accepts(subject) for term in self.terms)

    def accepted(self, subjects: _Subjects) -> _Mask:
        mask: _Mask = np.full(len(subjects), not self.terms, dtype=np.bool_)
        for term in self.terms:
            mask |= term.accepted(subjects)
        return mask


@dataclass(frozen=True, slots=True)
class _Not:
    term: _Term

    def accepts(self, subject: ConstraintSubject) -> bool:
        return not self.term.accepts(subject)

    def accepted(self, subjects: _Subjects) -> _Mask:
        mask: _Mask = ~self.term.accepted(subjects)
        return mask


@dataclass(frozen=True, slots=True)
class _In:
    """The value of a property is one of several.
    They are one text, with a NUL around each: a tenth of the memory of a set of texts.
    """

    key: str
    values: str

    def accepts(self, subject: ConstraintSubject) -> bool:
        value = subject.properties.get(self.key)
        return value is not None and f"\0{value}\0" in self.values

    def accepted(self, subjects: _Subjects) -> _Mask:
        values = frozenset(self.values[1:-1].split("\0"))
        return _mask((each.properties.get(self.key) in values for each in subjects), subjects)


@dataclass(frozen=True, slots=True)
class _Tolerates(_Term):
    """All taints of the node that keep pods away are tolerated."""

    tolerations: tuple[Toleration, ...]

    def accepts(self, subject: ConstraintSubject) -> bool:
        return not any(self.shuns(taint) for taint in taints_in(subject.properties))

    def shuns(self, taint: Taint) -> bool:
        return taint.effect in HARD_EFFECTS and not any(tolerates(each, taint) for each in self.tolerations)


class Constraint:
    """A compiled constraint and the text it came from.

    Attributes
    ----------
    text
        As JSON. Constraints of one text are one object while any of them is in use, so they are compared by
        identity.
    """

    __slots__ = ("__weakref__", "_calm", "term", "text")

    def __init__(self, term: _Term, text: str) -> None:
        self.term = term
        self.text = text
        calm = _calm(term)
        self._calm = Constraint(calm, text) if calm is not term else None

    @property
    def lasting(self) -> Constraint:
        """The same constraint, with pressure tolerated:
        pressure passes by itself, so it never makes a request unsatisfiable.
        """
        return self._calm or self

    def accepts(self, subject: ConstraintSubject) -> bool:
        """Return True if this node may be used."""
        return self.term.accepts(subject)

    def accepted(self, subjects: _Subjects) -> _Mask:
        """Return for each of many nodes whether it may be used."""
        return self.term.accepted(subjects)


_in_use: WeakValueDictionary[str, Constraint] = WeakValueDictionary()


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
    text = orjson.dumps(value).decode()
    known = _in_use.get(text)
    if known is None:
        known = _in_use[text] = Constraint(_term(value), text)
    return known


def in_rfc31(constraint: Constraint, taints: Iterable[Taint]) -> dict[str, Document]:
    """Return a constraint as a document of RFC 31 alone, for nodes that have no other taints than these;
    empty if it accepts them all.

    For people, not for matching. What is tolerated becomes the taints that are not tolerated, of which the
    first 20 are named. Comparisons stay: they have no other form.
    """
    found = _shunning(orjson.loads(constraint.text), sorted(taints, key=taint_property))
    assert isinstance(found, dict)
    return found


def _shunning(value: Document, taints: Sequence[Taint]) -> Document:
    """Return a term with each taint that it does not tolerate named; empty if nothing is left of it."""
    if not isinstance(value, dict):
        return value
    ((operator, operands),) = value.items() or (("and", []),)
    assert isinstance(operands, list)
    if operator == _TOLERATES:
        term = _tolerates([str(each) for each in operands])
        operator, parts = "and", [_without(taint) for taint in taints if term.shuns(taint)][:_MOST_NAMED]
    elif operator in ("and", "or", "not"):
        parts = [_shunning(each, taints) for each in operands]
        if operator == "and":
            parts = [each for each in parts if each != {}]
    else:
        return value
    if operator == "and" and len(parts) < 2:
        return parts[0] if parts else {}
    return {operator: parts}


def _without(taint: Taint) -> Document:
    return {"not": [{"properties": [taint_property(taint)]}]}


def _calm(term: _Term) -> _Term:
    """Return a term that also tolerates all pressure; the same one if it says nothing about taints."""
    match term:
        case _Tolerates(tolerations) if not set(_PRESSURE) <= set(tolerations):
            return _Tolerates((*tolerations, *_PRESSURE))
        case _All(terms) | _Any(terms):
            calm = tuple(_calm(each) for each in terms)
            return term if all(a is b for a, b in zip(calm, terms, strict=True)) else type(term)(calm)
        case _Not(inner):
            calm_inner = _calm(inner)
            return term if calm_inner is inner else _Not(calm_inner)
    return term


def _term(value: Document) -> _Term:
    if not isinstance(value, dict):
        raise InvalidConstraint(f"constraints: a map of one operator is needed, not {value!r:.40}")
    if not value:
        return _All(())
    if len(value) > 1:
        raise InvalidConstraint(
            f"constraints: one operator in a map is allowed, not {', '.join(sorted(value))}"
        )
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
    if operator == _TOLERATES:
        return _tolerates(texts)
    if operator == "in":
        return _in(texts)
    return _ranks(texts) if operator == "ranks" else _compared(operator, texts)


def _properties(texts: list[str]) -> _Term:
    for text in texts:
        if not text.removeprefix("^") or any(
            character in text.removeprefix("^") for character in "!&'\"`|()^"
        ):
            raise InvalidConstraint(f"constraints.properties: {text!r:.80} is no property name")
    return _Properties(
        tuple(t for t in texts if not t.startswith("^")), tuple(t[1:] for t in texts if t.startswith("^"))
    )


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


def _in(texts: list[str]) -> _Term:
    if len(texts) < 2 or not texts[0]:
        raise InvalidConstraint(
            f"constraints.in: a label and at least one value are needed, not {texts!r:.80}"
        )
    if any("\0" in text for text in texts):
        raise InvalidConstraint("constraints.in: a value contains a NUL")
    return _In(texts[0], "\0".join(("", *dict.fromkeys(texts[1:]), "")))


def _tolerates(texts: list[str]) -> _Tolerates:
    tolerations: list[Toleration] = []
    for text in texts:
        if (toleration := read_toleration(text)) is None:
            raise InvalidConstraint(
                f"constraints.{_TOLERATES}: {text!r:.80} is no toleration: "
                "write key=value:effect or key:effect"
            )
        tolerations.append(toleration)
    return _Tolerates(tuple(tolerations))


def _compared(operator: str, texts: list[str]) -> _Term:
    bound = label_number(texts[1]) if len(texts) == 2 and texts[0] else None
    if bound is None:
        raise InvalidConstraint(
            f"constraints.{operator}: a label and one whole number of 64 bits are needed, not {texts!r:.80}"
        )
    return _Compared(texts[0], bound, operator == "greater")
