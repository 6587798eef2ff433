"""The reference of the matcher's gRPC service: its calls and messages,
from ``fluxion.proto`` with its comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_tables import cell, code, table

__all__ = ["proto_page"]

PROTO = Path(__file__).resolve().parents[1] / "proto" / "v1" / "fluxion.proto"
_HEAD = """# The gRPC service of the matcher

Written by `docs/generate.py` from `proto/v1/fluxion.proto`. How the calls are used is in
[fluxion](../fluxion.md).
"""
_RPC = re.compile(r"rpc (?P<name>\w+)\((?P<request>\w+)\) returns \((?P<response>\w+)\)")
_FIELD = re.compile(
    r"(?P<type>(?:optional |repeated )?(?:map<[^>]+>|[\w.]+)) (?P<name>\w+) = (?P<number>\d+)[^;]*;(?: "
    r"+// (?P<said>.*))?$"
)
_CHOICE = re.compile(r"(?P<name>[A-Z][A-Z_0-9]*) = (?P<number>\d+);(?: +// (?P<said>.*))?$")
Row = tuple[str, ...]


def proto_page() -> str:
    """Return the page."""
    return proto_text(PROTO.read_text())


def proto_text(source: str) -> str:
    """Return the page of a ``.proto`` file."""
    head, _, rest = source.partition('syntax = "')
    said = "\n".join(line.removeprefix("//").strip() for line in head.splitlines())
    return "\n".join([_HEAD, said.strip(), "", *_body(rest.splitlines())]).rstrip() + "\n"


def _body(lines: list[str]) -> Iterator[str]:
    """Yield calls and messages. Comments above something, or on its line, are its meaning."""
    comment: list[str] = []
    blocks: list[str] = []
    rows: list[Row] = []
    for line in (each.strip() for each in lines):
        if line.startswith("// ----"):
            comment = []
        elif line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
        elif opened := re.match(r"(service|message|enum|oneof) (\w+) \{", line):
            if not blocks:
                yield f"## {'Calls' if opened[1] == 'service' else opened[2]}\n"
                if comment:
                    yield f"{cell(' '.join(comment))}\n"
            comment = []
            if not line.endswith("}"):
                blocks.append(f"{opened[1]} {opened[2]}")
            elif not blocks:
                yield "No fields.\n"
        elif line == "}":
            if len(blocks) == 1:
                yield from _closed(blocks[0], rows)
                rows = []
            if blocks:
                blocks.pop()
        elif blocks and line:
            rows += _row(line, " ".join(comment), blocks)
            comment = []
        elif not line:
            comment = []


def _row(line: str, comment: str, blocks: list[str]) -> list[Row]:
    if call := _RPC.match(line):
        request, response = (f"[{call[key]}](#{call[key].lower()})" for key in ("request", "response"))
        return [(code(call["name"]), request, response)]
    prefix = "".join(f"{block.split()[1]}." for block in blocks[1:] if block.startswith("enum"))
    if field := _FIELD.match(line) or _CHOICE.match(line):
        said = " ".join(part for part in (comment, field["said"] or "") if part)
        return [
            (
                field["number"],
                code(f"{prefix}{field['name']}"),
                code(field.groupdict().get("type") or "value"),
                cell(said),
            )
        ]
    return []


def _closed(block: str, rows: list[Row]) -> Iterator[str]:
    if block.startswith("service"):
        yield from table(("call", "request", "response"), rows)
    elif rows:
        yield from table(("number", "field", "type", "meaning"), rows)
    else:
        yield "No fields.\n"
