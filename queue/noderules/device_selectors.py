"""CEL expressions that select devices, evaluated as far as that is safe.

Users write these expressions, and the leader evaluates them for each device of a cluster. The language has
comprehensions, whose cost is a power of the length of the text, and the library has no limit of cost. So an
expression is evaluated only if everything in it is on a list: comparisons, logic, attributes and capacities
of the device, and functions whose cost is linear in their arguments. Regular expressions are RE2's. All else,
and what the library cannot read, is not evaluated (`InexactSelector`); who asks then counts without it.

Devices that look alike to an expression get one evaluation. Only the attributes that its text names count as
looks, so an id of each device does not make it unlike the others. The API server checks each expression
before it is stored, so a mistake in one is rare; a device for which the evaluation fails is not selected, as
a scheduler that fails takes none either.

The environment is that of Kubernetes (``device.driver``, ``device.attributes["domain"].name``,
``device.capacity["domain"].name``, with ``quantity()`` and ``semver()``):
k8s.io/dynamic-resource-allocation/cel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import structlog

from fluxqueue.api.devices import Device
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["InexactSelector", "Selector", "selector_of"]

log = structlog.get_logger()

_LONGEST: Final = 1_024
_LARGEST: Final = 800
"""Nodes of the tree of an expression; a comparison has about 25."""
_MOST_WORK: Final = 2_000
"""Nodes that are evaluated for one expression, at about 16 microseconds each;
devices of other looks beyond that count as selected."""
_LEAST_LOOKS: Final = 8
_FUNCTIONS: Final = {
    *("quantity", "isQuantity", "semver", "isSemver", "compareTo", "isGreaterThan", "isLessThan"),
    *("lowerAscii", "upperAscii", "startsWith", "endsWith", "contains", "matches"),
    *("string", "int", "double", "bool", "has"),
}
_RULES: Final = {
    *(
        "expr",
        "conditionalor",
        "conditionaland",
        "addition",
        "multiplication",
        "paren_expr",
        "list_lit",
        "exprlist",
    ),
    *(
        "relation",
        "relation_lt",
        "relation_le",
        "relation_gt",
        "relation_ge",
        "relation_eq",
        "relation_ne",
        "relation_in",
    ),
    *("unary", "unary_not", "unary_neg", "member", "member_dot", "member_dot_arg", "member_index"),
    *("primary", "literal", "ident", "ident_arg"),
}
"""Rules of the library's grammar that may occur.
Sums are left out: a name that is put together is not found in the text."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*")


class InexactSelector(ValueError):
    """An expression cannot be evaluated safely; the message says why."""


@dataclass(frozen=True, slots=True, order=True)
class _Version:
    """A version by the order of Semantic Versioning 2.0:
    numbers, then whether it is a release, then its pre-release parts.
    """

    numbers: tuple[int, ...]
    is_release: bool
    parts: tuple[tuple[bool, int, str], ...]

    @classmethod
    def read(cls, text: object) -> _Version:
        numbers, _, pre = str(text).partition("+")[0].partition("-")
        parts = tuple(
            (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
            for part in pre.split(".")
            if pre
        )
        found = tuple(int(number) for number in numbers.split("."))
        if len(found) != 3:
            raise ValueError(f"{text!r:.80} is no version")
        return cls(found, not parts, parts)


class Selector:
    """One expression.

    Parameters
    ----------
    program
        Evaluates it for a device in the library's types.
    names
        What its text names; None if an attribute may be meant that the text does not name.
    most_looks
        For how many different devices it is evaluated.
    """

    def __init__(self, program: Any, names: frozenset[str] | None, most_looks: int) -> None:
        self._program = program
        self._most_looks = most_looks
        self._names = names
        self._known: dict[object, bool] = {}

    def selects(self, driver: str, device: Device) -> bool:
        """True if the expression is true for a device, or if it was evaluated for too many others."""
        looks = self._looks(driver, device)
        known = self._known.get(looks)
        if known is None:
            if len(self._known) >= self._most_looks:
                return True
            known = self._known[looks] = self._evaluate(driver, device)
        return known

    def _looks(self, driver: str, device: Device) -> object:
        attributes = (device.attributes or {}).items()
        capacity = (device.capacity or {}).items()
        return (
            driver,
            tuple(sorted((name, repr(value)) for name, value in attributes if self._is_named(name))),
            tuple(sorted((name, str(value.value)) for name, value in capacity if self._is_named(name))),
        )

    def _is_named(self, name: str) -> bool:
        return self._names is None or name in self._names or name.rpartition("/")[2] in self._names

    def _evaluate(self, driver: str, device: Device) -> bool:
        from celpy import celtypes

        try:
            answer = self._program.evaluate({"device": _as_cel(driver, device)})
        except Exception as error:
            # of the library, of a function, or of the interpreter's stack: for this device it says nothing
            log.debug("devices.selector_failed", driver=driver, device=device.name, error=str(error)[:200])
            return False
        return isinstance(answer, celtypes.BoolType) and bool(answer)


@lru_cache(maxsize=1_024)
def selector_of(expression: str) -> Selector | InexactSelector:
    """Return an expression to evaluate, or why it cannot be."""
    try:
        return _compiled(expression)
    except InexactSelector as error:
        return error


def _compiled(expression: str) -> Selector:
    if len(expression) > _LONGEST:
        raise InexactSelector(f"it is longer than {_LONGEST} characters")
    try:
        import celpy
    except ImportError:
        raise InexactSelector("cel-python is not installed") from None
    environment = celpy.Environment()
    try:
        tree = environment.compile(expression)
        contents = [*_contents(tree)]
        if len(contents) > _LARGEST:
            raise InexactSelector("it has too many parts")
        for name, what in contents:
            if name not in (_FUNCTIONS if what == "function" else _RULES):
                raise InexactSelector(f"the {what} {name!r} is not evaluated")
        program = environment.program(tree, functions=_functions())
    except InexactSelector:
        raise
    except Exception as error:
        # the library raises what its parser raises, and the interpreter may run out of stack
        raise InexactSelector(f"it cannot be read: {type(error).__name__}") from None
    names = frozenset(_IDENTIFIER.findall(expression)) if "\\" not in expression else None
    named = (
        frozenset(part for name in names for part in (name, *name.split("."))) if names is not None else None
    )
    return Selector(program, named, max(_LEAST_LOOKS, _MOST_WORK // len(contents)))


def _contents(tree: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of all functions and rules of the grammar in a tree."""
    for node in tree.iter_subtrees():
        rule = str(node.data)
        yield rule, "rule"
        if rule == "ident_arg":
            yield str(node.children[0]), "function"
        elif rule == "member_dot_arg":
            yield str(node.children[1]), "function"


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _holds(reads: Callable[[object], object], text: object) -> bool:
    try:
        reads(text)
    except (ValueError, ArithmeticError):
        return False
    return True


def _quantity(text: object) -> Decimal:
    try:
        return parse_quantity(str(text))
    except InvalidQuantity as error:
        raise ValueError(str(error)) from None


def _functions() -> dict[str, Any]:
    from celpy import celtypes

    boolean, text = celtypes.BoolType, celtypes.StringType
    return {
        "quantity": _quantity,
        "isQuantity": lambda value: boolean(_holds(_quantity, value)),
        "semver": _Version.read,
        "isSemver": lambda value: boolean(_holds(_Version.read, value)),
        "compareTo": lambda left, right: celtypes.IntType(_compare(left, right)),
        "isGreaterThan": lambda left, right: boolean(_compare(left, right) > 0),
        "isLessThan": lambda left, right: boolean(_compare(left, right) < 0),
        "lowerAscii": lambda value: text(str(value).lower()),
        "upperAscii": lambda value: text(str(value).upper()),
    }


def _as_cel(driver: str, device: Device) -> Any:
    from celpy import celtypes

    attributes = {name: _attribute(value) for name, value in (device.attributes or {}).items()}
    capacity = {name: _quantity(value.value) for name, value in (device.capacity or {}).items()}
    fields = {
        "driver": celtypes.StringType(driver),
        "attributes": _by_domain(attributes, driver),
        "capacity": _by_domain(capacity, driver),
    }
    return celtypes.MapType({celtypes.StringType(name): value for name, value in fields.items()})


def _attribute(value: Mapping[str, Any]) -> Any:
    from celpy import celtypes

    ((kind, content),) = value.items()
    match kind:
        case "bool":
            return celtypes.BoolType(content)
        case "int":
            return celtypes.IntType(content)
        case "version":
            return _Version.read(content)
    return celtypes.StringType(content)


def _by_domain(values: Mapping[str, Any], driver: str) -> Any:
    """Return domain -> name -> value; a name without a domain is of the driver's.
    A domain that a device has nothing of is empty.
    """
    from celpy import celtypes

    class Domains(celtypes.MapType):
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key) if key in self else celtypes.MapType()

    domains = Domains()
    for name, value in values.items():
        domain, _, own = name.rpartition("/")
        key = celtypes.StringType(domain or driver)
        if key not in domains:
            domains[key] = celtypes.MapType()
        domains[key][celtypes.StringType(own)] = value
    return domains
