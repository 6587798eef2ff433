"""Jobspecs (RFC 14): what a job requests, read into a small tree.

The reader is as strict as flux-sched's, by measurement: exactly four keys at the top, no unknown key in a
resource, a label for every slot, whole counts of at least 0, and ranges that fit their operator. Units are
read but never used: counts are compared with vertex sizes as plain integers. `Count.qualify` decides what a
count with a range takes.

A count of 0 is allowed and never matches. Numbers above 2^32-1 are refused, as are texts larger or deeper
than `documents` reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from fluxqueue.fluxion.documents import Document, InvalidDocument, read_document
from fluxqueue.fluxion.graph.constraints import Constraint, InvalidConstraint, read_constraint
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.domains import DomainRule, InvalidDomains, read_domains
from fluxqueue.fluxion.match.flavors import Flavor, InvalidFlavors, admitting_any, read_flavors
from fluxqueue.fluxion.match.levels import GROUP, PREFERRED, LevelNeed

__all__ = ["GRAPH_DURATION_S", "SLOT", "Count", "InvalidJobspec", "Jobspec", "Resource", "read_jobspec"]

GRAPH_DURATION_S = 3_153_600_000
"""A hundred years: how far the graph plans."""

SLOT = "slot"
_MAX_COUNT = (1 << 32) - 1
_RESOURCE_KEYS = frozenset({"type", "count", "unit", "exclusive", "with", "label", "id"})
_TOP_KEYS = ("version", "resources", "tasks", "attributes")
_WHOLE = re.compile(r"\+?\d{1,10}")
_MAX_RESOURCES = 1_000
_LONGEST_NAME = 253


class InvalidJobspec(ValueError):
    """The jobspec cannot be read; the message names the key."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of vertices: from ``low`` to ``high`` in steps of operator and operand."""

    low: int
    high: int
    operator: str = "+"
    operand: int = 1

    @property
    def fixed(self) -> bool:
        """True if there is only one allowed number."""
        return self.low == self.high

    @property
    def most(self) -> int:
        """The largest allowed number."""
        return self.qualify(self.high) if self.low != self.high else self.high

    def qualify(self, available: int) -> int:
        """Return the largest allowed number that is available; 0 if not even ``low`` is."""
        if available < self.low or self.low == 0:
            return 0
        bound = min(available, self.high)
        if self.low == self.high:
            return self.low
        if self.operator == "+":
            return bound - (bound - self.low) % self.operand
        best = self.low
        while True:
            following = best * self.operand if self.operator == "*" else best**self.operand
            if following > bound or following <= best:
                return best
            best = following


@dataclass(frozen=True, slots=True)
class Resource:
    """A level of the request.

    Attributes
    ----------
    exclusive
        None if the jobspec leaves it open.
    """

    type: str
    count: Count
    children: tuple[Resource, ...] = ()
    label: str = ""
    exclusive: bool | None = None

    def counted(self, count: int) -> str:
        """Return a number of these in words.
        Slots with the label ``pod``, or ``pod.0`` and so on, are the pods that people know.
        """
        noun = NODE if self.type == NODE else "pod" if self.label.partition(".")[0] == "pod" else SLOT
        return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

    def walk(self) -> Iterator[Resource]:
        """Yield this resource and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Jobspec:
    """A request: levels, wall time (0: unset), constraint, domain rules, and the advance reservation that it
    is for.

    Compared by identity, so that it is a fast key, also of caches that hold it weakly.

    Attributes
    ----------
    level_needs, inner
        Labelled levels at its top (`fluxqueue.fluxion.match.levels`), and the request below them; empty and
        None without such levels.
    flavors, of_flavors
        Its flavors (`fluxqueue.fluxion.match.flavors`), and the same request on the nodes of each of them.
        Its own constraint admits the nodes of all.
    """

    resources: tuple[Resource, ...]
    duration_s: int
    constraint: Constraint | None
    domains: tuple[DomainRule, ...] = ()
    reservation: str = ""
    level_needs: tuple[LevelNeed, ...] = ()
    inner: Jobspec | None = None
    flavors: tuple[Flavor, ...] = ()
    of_flavors: tuple[Jobspec, ...] = ()

    @property
    def asks_for_none(self) -> bool:
        """True if a count of 0 keeps it from ever matching."""
        return any(level.count.low == 0 for level in self.walk())

    @property
    def takes_something(self) -> bool:
        """True if a job would hold anything: what is only shared cannot be booked."""
        return any(level.type == SLOT or level.exclusive for level in self.walk())

    def in_flavor_of(self, nodes: Collection[Vertex]) -> Jobspec:
        """Return the request on the nodes of the flavor that all these nodes are of; else itself."""
        return next(
            (
                each
                for each in self.of_flavors
                if each.constraint is not None and all(map(each.constraint.accepts, nodes))
            ),
            self,
        )

    def walk(self) -> Iterator[Resource]:
        """Yield all levels, from the top down."""
        for resource in self.resources:
            yield from resource.walk()


def read_jobspec(text: str) -> Jobspec:
    """Read a jobspec.

    Parameters
    ----------
    text
        YAML or JSON.

    Returns
    -------
    Jobspec
        Its durations in whole seconds, rounded up.

    Raises
    ------
    InvalidJobspec
        The message names the key and what is wrong with it.
    """
    try:
        top = read_document(text)
    except InvalidDocument as error:
        raise InvalidJobspec(f"jobspec: {error}") from None
    if not isinstance(top, dict):
        raise InvalidJobspec("jobspec: a map with version, resources, tasks and attributes is needed")
    for key in _TOP_KEYS:
        if key not in top:
            raise InvalidJobspec(f"jobspec: key {key} is missing")
    if extra := sorted(set(top) - set(_TOP_KEYS)):
        raise InvalidJobspec(f"jobspec: unknown key {extra[0]!r:.40}")
    version = _whole(top["version"], "version")
    if not 1 <= version <= 9999:
        raise InvalidJobspec(f"version: {version} is not between 1 and 9999")
    resources = top["resources"]
    if not isinstance(resources, list):
        raise InvalidJobspec("resources: a list is needed")
    if not resources:
        raise InvalidJobspec("resources: the list is empty")
    reader = _ResourceReader()
    levels = tuple(reader.read(resource, f"resources[{i}]") for i, resource in enumerate(resources))
    _check_tasks(top["tasks"])
    read = _read_attributes(top["attributes"])
    if read.domains and not all(level.count.fixed for resource in levels for level in resource.walk()):
        raise InvalidJobspec("attributes.system.domains: plain counts are needed in resources")
    needs, below = _split_levels(levels)

    def on_nodes(constraint: Constraint | None) -> Jobspec:
        inner = Jobspec(below, read.duration_s, constraint, read.domains, read.reservation) if needs else None
        return Jobspec(levels, read.duration_s, constraint, read.domains, read.reservation, needs, inner)

    of_flavors = tuple(on_nodes(each) for each in read.of_flavors)
    return replace(on_nodes(read.constraint), flavors=read.flavors, of_flavors=of_flavors)


def _split_levels(levels: tuple[Resource, ...]) -> tuple[tuple[LevelNeed, ...], tuple[Resource, ...]]:
    """Return the labelled levels at the top of a request, and what is below them;
    no levels if they are none that can be matched.
    """
    needs: list[LevelNeed] = []
    below = levels
    while len(below) == 1 and (top := below[0]).label in (GROUP, PREFERRED) and top.type != SLOT:
        if (
            (needs and needs[-1].groups > 1)
            or not top.count.fixed
            or not top.children
            or top.exclusive
            or top.count.low == 0
        ):
            return (), levels
        if top.label == PREFERRED and top.count.low > 1:
            return (), levels
        needs.append(LevelNeed(top.type, top.count.low, top.label == PREFERRED))
        below = top.children
    return tuple(needs), below


class _ResourceReader:
    """Reads resource levels and counts them, because aliases make huge trees out of small texts."""

    def __init__(self) -> None:
        self._seen = 0

    def read(self, value: Document, where: str) -> Resource:
        self._seen += 1
        if self._seen > _MAX_RESOURCES:
            raise InvalidJobspec(f"resources: more than {_MAX_RESOURCES} levels are not read")
        if not isinstance(value, dict):
            raise InvalidJobspec(f"{where}: a map is needed")
        if extra := sorted(set(value) - _RESOURCE_KEYS):
            raise InvalidJobspec(f"{where}: unknown key {extra[0]!r:.40}")
        kind = value.get("type")
        if isinstance(kind, bool) or not isinstance(kind, str | int | float):
            raise InvalidJobspec(f"{where}.type: text is needed")
        if "count" not in value:
            raise InvalidJobspec(f"{where}: key count is missing")
        count = _count(value["count"], f"{where}.count")
        for key in ("unit", "label", "id"):
            if key in value and isinstance(value[key], list | dict):
                raise InvalidJobspec(f"{where}.{key}: text is needed")
        label = value.get("label")
        if kind == SLOT and label is None:
            raise InvalidJobspec(f"{where}: a slot needs the key label")
        children = value.get("with", [])
        if "with" in value and not isinstance(children, list):
            raise InvalidJobspec(f"{where}.with: a list is needed")
        assert isinstance(children, list)
        return Resource(
            str(kind),
            count,
            tuple(self.read(child, f"{where}.with[{i}]") for i, child in enumerate(children)),
            "" if label is None else str(label),
            _truth(value["exclusive"], f"{where}.exclusive") if "exclusive" in value else None,
        )


def _truth(value: Document, where: str) -> bool:
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise InvalidJobspec(f"{where}: true or false is needed, not {value!r:.40}")


def _whole(value: Document, where: str) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJobspec(f"{where}: a whole number is needed, not {value!r:.40}")
    if not 0 <= value <= _MAX_COUNT:
        raise InvalidJobspec(f"{where}: {value!r:.40} is not between 0 and {_MAX_COUNT}")
    return value


def _count(value: Document, where: str) -> Count:
    if not isinstance(value, dict):
        number = _whole(value, where)
        return Count(number, number)
    if "min" not in value:
        raise InvalidJobspec(f"{where}: key min is missing")
    low = _whole(value["min"], f"{where}.min")
    if low < 1:
        raise InvalidJobspec(f"{where}.min: at least 1 is needed")
    if set(value) == {"min"}:
        return Count(low, _MAX_COUNT)
    if set(value) != {"min", "max", "operator", "operand"}:
        raise InvalidJobspec(f"{where}: either min alone or all of min, max, operator and operand are needed")
    high, operand, operator = (
        _whole(value["max"], f"{where}.max"),
        _whole(value["operand"], f"{where}.operand"),
        value["operator"],
    )
    if high < low:
        raise InvalidJobspec(f"{where}.max: {high} is less than min {low}")
    if operator not in ("+", "*", "^"):
        raise InvalidJobspec(f"{where}.operator: {operator!r:.40} is none of +, *, ^")
    least = 1 if operator == "+" else 2
    if operand < least:
        raise InvalidJobspec(f"{where}.operand: operator {operator} needs at least {least}, not {operand}")
    if operator == "^" and low < 2:
        raise InvalidJobspec(f"{where}.min: operator ^ needs at least 2, not {low}")
    return Count(low, high, str(operator), operand)


def _check_tasks(tasks: Document) -> None:
    if not isinstance(tasks, list):
        raise InvalidJobspec("tasks: a list is needed")
    for i, task in enumerate(tasks):
        where = f"tasks[{i}]"
        if not isinstance(task, dict):
            raise InvalidJobspec(f"{where}: a map is needed")
        if not isinstance(task.get("command"), list):
            raise InvalidJobspec(f"{where}.command: a list is needed")
        if not isinstance(task.get("slot"), str | int | float):
            raise InvalidJobspec(f"{where}.slot: text is needed")
        if "count" not in task:
            raise InvalidJobspec(f"{where}: key count is missing")
        if not isinstance(task["count"], dict) or len(task["count"]) != 1:
            raise InvalidJobspec(f"{where}.count: a map of one entry is needed")
        if extra := sorted(set(task) - {"command", "slot", "count", "distribution", "attributes"}):
            raise InvalidJobspec(f"{where}: unknown key {extra[0]!r:.40}")


@dataclass(frozen=True, slots=True)
class _Attributes:
    """What is read of the attributes of a jobspec; ``of_flavors`` is the constraint of each flavor."""

    duration_s: int = 0
    constraint: Constraint | None = None
    domains: tuple[DomainRule, ...] = ()
    reservation: str = ""
    flavors: tuple[Flavor, ...] = ()
    of_flavors: tuple[Constraint | None, ...] = ()


def _read_attributes(attributes: Document) -> _Attributes:
    if attributes is None:
        return _Attributes()
    if not isinstance(attributes, dict):
        raise InvalidJobspec("attributes: a map is needed")
    if extra := sorted(set(attributes) - {"user", "system"}):
        raise InvalidJobspec(f"attributes: unknown key {extra[0]!r:.40}")
    system = attributes.get("system")
    if system is None:
        return _Attributes()
    if not isinstance(system, dict):
        raise InvalidJobspec("attributes.system: a map is needed")
    if "environment" in system and not isinstance(system["environment"], dict):
        raise InvalidJobspec("attributes.system.environment: a map is needed")
    duration_s = _duration(system["duration"]) if "duration" in system else 0
    reservation = system.get("reservation", "")
    if not isinstance(reservation, str) or len(reservation) > _LONGEST_NAME:
        raise InvalidJobspec(
            f"attributes.system.reservation: a name of at most {_LONGEST_NAME} characters is needed"
        )
    try:
        flavors, rules = read_flavors(system.get("flavors")), system.get("constraints")
        if flavors and reservation:
            raise InvalidFlavors("flavors: a job for a reservation runs on its nodes: leave one of them out")
        return _Attributes(
            duration_s,
            read_constraint(admitting_any(rules, flavors)),
            read_domains(system.get("domains")),
            reservation,
            flavors,
            tuple(read_constraint(admitting_any(rules, [each])) for each in flavors),
        )
    except (InvalidConstraint, InvalidDomains, InvalidFlavors) as error:
        raise InvalidJobspec(f"attributes.system.{error}") from None


def _duration(value: Document) -> int:
    where = "attributes.system.duration"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InvalidJobspec(f"{where}: a number of seconds is needed, not {value!r:.40}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidJobspec(f"{where}: a number of seconds is needed, not {value!r:.40}")
    if not math.isfinite(value) or not 0 <= value <= GRAPH_DURATION_S:
        raise InvalidJobspec(f"{where}: {value!r:.40} is not between 0 and {GRAPH_DURATION_S} seconds")
    return math.ceil(value)
