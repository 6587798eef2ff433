"""A reader for YAML or JSON from untrusted callers, with limits.

A jobspec may be either. JSON is tried first: programs send it, and its parser needs no limits but depth. YAML
is read as libyaml's events, from which this module builds plain values. Aliases share the value of their
anchor instead of copying it, and an alias inside its own anchor is refused. Depth and number of events are
counted while reading, so no document costs more than the limits allow. Plain scalars become numbers, truth
values and null as in JSON; everything else stays text.
"""

from __future__ import annotations

import math
import re

import orjson
import yaml

__all__ = ["MAX_DEPTH", "MAX_EVENTS", "MAX_TEXT", "Document", "InvalidDocument", "read_document"]

MAX_TEXT = 1 << 20
MAX_DEPTH = 64
MAX_EVENTS = 20_000

Document = None | bool | int | float | str | list["Document"] | dict[str, "Document"]

_INTEGER = re.compile(r"[-+]?\d{1,20}")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class InvalidDocument(ValueError):
    """The text is neither YAML nor JSON, or exceeds a limit; the message names which."""


def read_document(text: str) -> Document:
    """Read one document.

    Parameters
    ----------
    text
        YAML or JSON, at most `MAX_TEXT` characters, `MAX_DEPTH` levels and, for YAML, `MAX_EVENTS` parser
        events.

    Returns
    -------
    Document
        Dicts with text keys, lists, text, numbers, truth values and None.

    Raises
    ------
    InvalidDocument
        The message names the limit, or line and column.
    """
    if len(text) > MAX_TEXT:
        raise InvalidDocument(f"the text has {len(text)} characters: at most {MAX_TEXT} are read")
    if text.lstrip()[:1] in ("{", "["):
        try:
            value: Document = orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # YAML's flow style looks like JSON and may still be read
        else:
            _check_depth(value)
            return value
    try:
        return _Composer(text).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise InvalidDocument(
            f"the text is neither JSON nor YAML: {getattr(error, 'problem', None) or error}{place}"
        ) from None
    except (UnicodeError, ValueError) as error:
        if isinstance(error, InvalidDocument):
            raise
        raise InvalidDocument(f"the text cannot be read: {error}") from None


def _check_depth(value: Document) -> None:
    """Refuse deep nesting, without recursion."""
    level: list[Document] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidDocument(f"the text nests deeper than {MAX_DEPTH} levels")


class _Composer:
    """Builds values from parser events and counts the events."""

    def __init__(self, text: str) -> None:
        self._events = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._count = 0
        self._anchors: dict[str, Document] = {}
        self._open: set[str] = set()

    def document(self) -> Document:
        self._next()  # stream start
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self._value(self._next(), 0)
        self._next()  # document end
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise InvalidDocument("the text holds several documents: one is read")
        return value

    def _next(self) -> yaml.Event:
        self._count += 1
        if self._count > MAX_EVENTS:
            raise InvalidDocument(
                f"the text has more than {MAX_EVENTS} elements: send JSON if it must be that long"
            )
        return next(self._events)

    def _value(self, event: yaml.Event, depth: int) -> Document:
        if depth > MAX_DEPTH:
            raise InvalidDocument(f"the text nests deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                raise InvalidDocument(f"alias {event.anchor!r} is inside its own anchor")
            if event.anchor not in self._anchors:
                raise InvalidDocument(f"alias {event.anchor!r} names nothing")
            return self._anchors[event.anchor]
        assert isinstance(event, yaml.NodeEvent)
        anchor = event.anchor
        value: Document
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event.value) if event.implicit[0] and event.style is None else event.value
        else:
            if anchor:
                self._open.add(anchor)
            value = (
                self._sequence(depth) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(depth)
            )
            self._open.discard(anchor)
        if anchor:
            self._anchors[anchor] = value
        return value

    def _sequence(self, depth: int) -> list[Document]:
        items: list[Document] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Document]:
        items: dict[str, Document] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise InvalidDocument("a key is not plain text")
            items[event.value] = self._value(self._next(), depth + 1)
        return items


def _scalar(text: str) -> Document:
    if text in _NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
