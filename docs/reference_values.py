"""The reference of the chart's values: each with its default and its comment, from ``values.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_tables import cell, code, table

__all__ = ["Value", "values_of", "values_page"]

VALUES = Path(__file__).resolve().parents[1] / "charts" / "fluxqueue" / "values.yaml"
_HEAD = """# Values of the chart

Written by `docs/generate.py` from `charts/fluxqueue/values.yaml`. `values.schema.json` next to it refuses
what is not listed here. Which of them matter is in [install](../install.md#values-that-matter).
"""


@dataclass(frozen=True)
class Value:
    """A value: its path, its default as YAML, and what its comment says."""

    path: str
    default: str
    meaning: str


def values_page() -> str:
    """Return the page: a section for each top-level key."""
    lines, section = [_HEAD], ""
    groups: dict[str, list[Value]] = {}
    for value in values_of(VALUES.read_text()):
        groups.setdefault(value.path.split(".")[0] if "." in value.path else "", []).append(value)
    for section, values in groups.items():
        lines += [f"## {section or 'For everything'}", ""]
        lines += table(
            ("value", "default", "meaning"),
            ((code(each.path), code(each.default), cell(each.meaning)) for each in values),
        )
    return "\n".join(lines).rstrip() + "\n"


def values_of(text: str) -> Iterator[Value]:
    """Yield the values that have a ``# --`` comment, in their order.
    What such a comment describes may be a whole mapping.
    """
    tree = yaml.compose(text)
    assert isinstance(tree, yaml.MappingNode)
    yield from _below(tree, "", text.splitlines())


def _below(node: yaml.MappingNode, path: str, lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        here = f"{path}.{key.value}".lstrip(".")
        comment = _comment(lines, key.start_mark.line)
        if comment:
            yield Value(here, _plain(value), comment)
        elif isinstance(value, yaml.MappingNode):
            yield from _below(value, here, lines)


def _comment(lines: list[str], line: int) -> str:
    """Return what the comment above a line says after ``--``."""
    found: list[str] = []
    for above in reversed(lines[:line]):
        text = above.strip()
        if not text.startswith("#"):
            break
        found.insert(0, text.lstrip("# ").strip())
        if text.startswith("# --"):
            return " ".join(found).removeprefix("--").strip()
    return ""


def _plain(node: yaml.Node) -> str:
    value = yaml.safe_load(yaml.serialize(node))
    if isinstance(value, str):
        return value or '""'
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
