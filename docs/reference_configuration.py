"""The reference of the queue's configuration file:
the fields of `QueueConfig`, with the sentences of its docstring.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from markdown_tables import cell, code, table

from fluxqueue.queue.config import QueueConfig

__all__ = ["attributes_of", "configuration_page"]

_HEAD = """# Configuration of the queue

Written by `docs/generate.py` from `queue/config.py`. The chart writes the file from `queue.config`
([values](values.md#queue)) and `fluxqueue queue --config FILE` reads it at its start: a change restarts the
queue. An unknown key or an impossible value ends the start with a sentence that names it.
"""


def configuration_page() -> str:
    """Return the page: the top of the file, then each structure in it."""
    lines = [_HEAD, "## The file", ""]
    pending, seen = [("The file", QueueConfig)], {QueueConfig}
    while pending:
        title, struct = pending.pop(0)
        if title != "The file":
            lines += [f"## {title}", ""]
        lines += table(("key", "type", "default", "meaning"), _rows(struct))
        for field in msgspec.structs.fields(struct):
            for below in _structs(field.type):
                if below not in seen:
                    seen.add(below)
                    pending.append((field.encode_name, below))
    return "\n".join(lines).rstrip() + "\n"


def attributes_of(struct: type[Any]) -> dict[str, str]:
    """Return what the numpydoc section Attributes says, by the name of the attribute."""
    _, _, section = (inspect.getdoc(struct) or "").partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    for head, body in re.findall(r"^(\S[^\n]*)\n((?:    [^\n]*\n?|\n)+)", section, re.MULTILINE):
        found |= {name.split(":")[0].strip(): " ".join(body.split()) for name in head.split(",")}
    return found


def _rows(struct: type[Any]) -> Iterator[tuple[str, str, str, str]]:
    meanings = attributes_of(struct)
    for field in msgspec.structs.fields(struct):
        yield (
            code(field.encode_name),
            cell(_type(field.type)),
            _default(field),
            cell(meanings.get(field.name, "").replace("``", "`")),
        )


def _structs(kind: Any) -> list[type[Any]]:
    """Return the structures in a type, from the outside."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [found for inner in typing.get_args(kind) for found in _structs(inner)]


def _type(kind: Any) -> str:
    return _words(msgspec.inspect.type_info(kind))


def _words(info: msgspec.inspect.Type) -> str:
    """Return a type as people say it."""
    match info:
        case msgspec.inspect.LiteralType():
            return " or ".join(code(str(value)) for value in info.values)
        case msgspec.inspect.EnumType():
            return " or ".join(code(str(member.value)) for member in info.cls)
        case (
            msgspec.inspect.ListType()
            | msgspec.inspect.VarTupleType()
            | msgspec.inspect.SetType()
            | msgspec.inspect.FrozenSetType()
        ):
            return f"list of {_words(info.item_type)}"
        case msgspec.inspect.DictType():
            return f"map to {_words(info.value_type)}"
        case msgspec.inspect.UnionType():
            return " or ".join(_words(each) for each in info.types)
        case msgspec.inspect.Metadata():
            return _words(info.type)
    name = type(info).__name__.removesuffix("Type").lower()
    return {
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "boolean",
        "struct": "object",
        "none": "nothing",
    }.get(name, name)


def _default(field: Any) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        if field.default_factory is msgspec.NODEFAULT:
            return "required"
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "as below"
    return (
        ""
        if value is None
        else code(value if isinstance(value, str) and value else msgspec.json.encode(value).decode())
    )
