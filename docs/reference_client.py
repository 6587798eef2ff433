"""The reference of the Python client: every public name with its signature, from the docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import fluxqueue.client as client
from fluxqueue.client.errors import FluxQueueError

__all__ = ["client_page"]

_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Yields", "Notes")
_HEAD = """# Python client: reference

Written by `docs/generate.py` from the docstrings. The [guide](../client.md) explains how the parts belong
together.
"""


def client_page() -> str:
    """Return the page."""
    found = {name: getattr(client, name) for name in client.__all__}
    errors = {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and issubclass(each, FluxQueueError)
    }
    others = {
        name: each
        for name, each in found.items()
        if name not in errors and each.__module__.startswith("fluxqueue.client")
    }
    parts = [_HEAD]
    for name in sorted(others, key=str.lower):
        parts += _entry(name, others[name])
    parts += ["## Errors\n", "| class | also a | meaning |\n|---|---|---|"]
    for name in sorted(errors):
        also = [
            base.__name__
            for base in errors[name].__mro__[1:]
            if base.__module__ in ("builtins", "concurrent.futures._base")
        ]
        builtin = ", ".join(
            f"`{each}`"
            for each in also
            if each not in ("Exception", "BaseException", "object", "OSError", "RuntimeError")
        )
        parts.append(f"| `{name}` | {builtin} | {_first(errors[name])} |")
    return "\n".join(parts) + "\n"


def _entry(name: str, each: Any) -> Iterator[str]:
    yield f"## {name}\n"
    if inspect.isclass(each):
        if (
            each.__init__ is not object.__init__
            and not dataclasses.is_dataclass(each)
            and not hasattr(each, "__total__")
        ):
            yield f"```python\n{name}{_signature(each.__init__)}\n```\n"
        yield _text(each)
        if dataclasses.is_dataclass(each):
            yield from _fields(each)
        for method_name, method in _members(each).items():
            if method_name.startswith("_") or not _is_documented(method):
                continue
            yield f"### {name}.{method_name}\n"
            function = getattr(method, "fget", None) or inspect.unwrap(getattr(method, "__func__", method))
            if not isinstance(method, property):
                word = "async " if inspect.iscoroutinefunction(function) else ""
                yield f"```python\n{word}{method_name}{_signature(function)}\n```\n"
            yield _text(function)
    else:
        yield f"```python\n{name}{_signature(each)}\n```\n"
        yield _text(each)


def _fields(each: type[Any]) -> Iterator[str]:
    """Yield the fields of a dataclass, those of its bases too."""
    yield "```python"
    for field in dataclasses.fields(each):
        has_default = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        yield f"{field.name}: {field.type}{' = ...' if has_default else ''}"
    yield "```\n"
    for base in each.__mro__[1:-1]:
        if base.__doc__ and dataclasses.is_dataclass(base):
            yield _text(base, only_sections=True)


def _members(each: type) -> dict[str, Any]:
    """Return what a class has, its own first, then what it has from other classes of the client."""
    members: dict[str, Any] = {}
    for base in each.__mro__:
        if base.__module__.startswith("fluxqueue.client."):
            members |= {name: member for name, member in vars(base).items() if name not in members}
    return members


def _is_documented(method: Any) -> bool:
    return isinstance(method, property | classmethod | staticmethod) or inspect.isfunction(method)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_plain(each.annotation))
        for name, each in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(
        signature.replace(parameters=parameters, return_annotation=_plain(signature.return_annotation))
    )


class _Plain(str):
    """An annotation that is shown without quotes; those of default values stay."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


def _first(each: Any) -> str:
    return " ".join((inspect.getdoc(each) or "").split("\n\n")[0].split())


def _text(each: Any, *, only_sections: bool = False) -> str:
    """Return a numpydoc docstring as Markdown."""
    paragraphs: list[str] = []
    lines = (inspect.getdoc(each) or "").splitlines()
    section = ""
    for position, line in enumerate(lines):
        below = lines[position + 1] if position + 1 < len(lines) else ""
        if line in _SECTIONS and below and set(below) == {"-"}:
            section = line
            paragraphs += ["", f"**{line}**", ""]
        elif set(line) == {"-"} and lines[position - 1] in _SECTIONS:
            continue
        elif section in ("Parameters", "Attributes", "Raises") and line and not line.startswith(" "):
            paragraphs.append(f"- `{line}`:")
        elif not only_sections or section:
            paragraphs.append(line)
    text = "\n".join(paragraphs).replace("``", "`")
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
