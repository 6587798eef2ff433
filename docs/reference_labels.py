"""The reference of keys: every label, annotation, gate and condition, who reads or writes it in the code, and
what it means.

The keys are those of `fluxqueue.api.names`; their meaning is the row in docs/reference/objects.md, or else
the docstring of the constant.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_tables import cell, code, table

__all__ = ["Key", "keys_in", "labels_page", "meanings_in", "rooms_that_use"]

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("api", "cli", "client", "kube", "local", "minicluster", "queue", "scheduler_plugin", "webhook")
_HEAD = """# Labels and annotations

Written by `docs/generate.py` from `api/names.py` and the rows of [objects](objects.md), which also has the
values that people write. The last column names the folders of the code that read or write a key.
"""
_SUFFIXES = {
    "_LABEL": "label",
    "_ANNOTATION": "annotation",
    "_CONDITION": "condition",
    "_KEY": "label or annotation",
}
_ROW = re.compile(
    r"^\| (?P<keys>(?:labels?|annotations?) `[^|]+) \| (?P<on>[^|]*) \| (?P<meaning>.*) \|$", re.MULTILINE
)


@dataclass(frozen=True)
class Key:
    """A key of metadata: the constant's name, its text, what it is, and the docstring below it."""

    constant: str
    text: str
    kind: str
    docstring: str


def labels_page() -> str:
    """Return the page: our own keys, then those of others that are read."""
    keys = list(keys_in((ROOT / "api" / "names.py").read_text()))
    meanings = meanings_in((ROOT / "docs" / "reference" / "objects.md").read_text())
    rooms = rooms_that_use({key.constant for key in keys})
    lines = [_HEAD]
    for title, ours in (("Of fluxqueue", True), ("Of others", False)):
        chosen = sorted(
            (key for key in keys if key.text.startswith("fluxqueue") is ours), key=lambda key: key.text
        )
        rows = (
            (
                code(key.text),
                key.kind,
                meanings.get(key.text) or cell(key.docstring),
                ", ".join(sorted(rooms[key.constant])),
            )
            for key in chosen
        )
        lines += [f"## {title}", "", *table(("key", "what", "meaning", "in"), rows)]
    return "\n".join(lines).rstrip() + "\n"


def keys_in(source: str) -> Iterator[Key]:
    """Yield the keys that a module of names defines, each once."""
    body, seen = ast.parse(source).body, set()
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        name, value = statement.target.id, statement.value
        kind = next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), "")
        if (
            not kind
            or not isinstance(value, ast.Constant)
            or not isinstance(value.value, str)
            or (value.value, kind) in seen
        ):
            continue
        seen.add((value.value, kind))
        said = (
            below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        )
        yield Key(name, value.value, kind, str(said).replace("``", "`"))


def meanings_in(page: str) -> Mapping[str, str]:
    """Return what the tables of a page say of each key, with links for another page of its folder."""
    found: dict[str, str] = {}
    for row in _ROW.finditer(page):
        said = row["meaning"].replace("](#", "](objects.md#")
        for key in re.findall(r"`([^`]+)`", row["keys"]):
            if "/" in key or "." in key:
                found[key] = f"{found[key]} {said}" if key in found else f"{said}."
    return found


def rooms_that_use(constants: set[str]) -> Mapping[str, set[str]]:
    """Return the folders of the code in which each constant is named, besides its definition."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if path.name == "names.py" and room == "api":
                continue
            for constant in constants & set(re.findall(r"\bnames\.([A-Z_]+)\b", path.read_text())):
                rooms[constant].add(room)
    return rooms
