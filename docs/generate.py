"""Writes what the documentation says of the code: the pages of docs/reference, and the pictures of the
architecture.

``python docs/generate.py`` writes the pages, ``python docs/generate.py --check`` names those that differ.
Pictures stand between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reference_changes import changes_page
from reference_cli import cli_page
from reference_client import client_page
from reference_configuration import configuration_page
from reference_crds import crds_page
from reference_labels import labels_page
from reference_licences import licences_page
from reference_metrics import metrics_page
from reference_proto import proto_page
from reference_reasons import reasons_page
from reference_values import values_page
from reference_versions import versions_table

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.states import ENDED, sources

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = tuple(sorted(path.name for path in (ROOT / "fluxqueue").iterdir() if path.name != "proto"))
LEVELS = ("debug", "info", "warning", "error", "exception")
LOGGERS = ("log", "_log", "logger")
REFERENCES = {
    "changes": changes_page,
    "cli": cli_page,
    "client": client_page,
    "configuration": configuration_page,
    "crds": crds_page,
    "labels": labels_page,
    "licences": licences_page,
    "metrics": metrics_page,
    "proto": proto_page,
    "reasons": reasons_page,
    "values": values_page,
}
"""The pages of docs/reference by their name, besides that of the log events."""


@dataclass(frozen=True)
class Module:
    """A module of the programs."""

    name: str
    tree: ast.Module


@dataclass
class LogEvent:
    """What is known of the calls that write one event."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


def modules(*rooms: str) -> Iterator[Module]:
    """Yield the modules of some top-level folders, in the order of their names."""
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(("fluxqueue", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
                ".__init__"
            )
            if not path.name.endswith("_pb2.py"):
                yield Module(name, ast.parse(path.read_text()))


# ---- log events --------------------------------------------------------------------------------------------


def log_events(found: Sequence[Module]) -> dict[str, LogEvent]:
    """Return the events that modules log, by their key.

    Raises
    ------
    SystemExit
        If an event is no literal ``noun.verb`` key.
    """
    events: dict[str, LogEvent] = defaultdict(LogEvent)
    for module in found:
        for call in ast.walk(module.tree):
            if not (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in LEVELS
            ):
                continue
            if not _is_logger(call.func.value) or not call.args:
                continue
            for key in _keys(call.args[0], module.name):
                event = events[key]
                event.levels.add("error" if call.func.attr == "exception" else call.func.attr)
                event.fields |= {
                    keyword.arg for keyword in call.keywords if keyword.arg not in (None, "exc_info")
                }
                event.modules.add(module.name.removeprefix("fluxqueue."))
    return dict(sorted(events.items()))


def _is_logger(value: ast.expr) -> bool:
    name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
    return name in LOGGERS


def _keys(value: ast.expr, module: str) -> list[str]:
    choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    keys = [
        choice.value
        for choice in choices
        if isinstance(choice, ast.Constant) and isinstance(choice.value, str)
    ]
    if len(keys) != len(choices) or not all(re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", key) for key in keys):
        raise SystemExit(f"{module}, line {value.lineno}: a log event is a literal noun.verb key")
    return keys


def logs_page(events: Mapping[str, LogEvent]) -> str:
    """Return the page that lists the log events."""
    lines = [
        "# Log events",
        "",
        (
            "Every program logs JSON or text lines to standard error. `event` is one of these keys, the "
            "other fields are data. Secrets are"
        ),
        "never logged. `docs/generate.py` writes this page from the code.",
        "",
        "| event | level | fields | logged by |",
        "|---|---|---|---|",
    ]
    for key, event in events.items():
        fields = ", ".join(f"`{name}`" for name in sorted(event.fields))
        lines.append(
            f"| `{key}` | {', '.join(sorted(event.levels))} | {fields} | "
            f"{', '.join(f'`{name}`' for name in sorted(event.modules))} |"
        )
    return "\n".join(lines) + "\n"


# ---- pictures ----------------------------------------------------------------------------------------------


def states_picture() -> list[str]:
    """Return the states of a workload and the allowed transitions, as Mermaid."""
    lines = ["stateDiagram-v2", "    [*] --> Pending"]
    for after in State:
        lines += [f"    {before} --> {after}" for before in sorted(sources(after))]
    return [*lines, *(f"    {state} --> [*]" for state in sorted(ENDED))]


def rooms_picture(room: str) -> list[str]:
    """Return which parts of one top-level folder import which, as Mermaid;
    an arrow that others imply is left out.
    """
    prefix = f"fluxqueue.{room}."
    imports: dict[str, set[str]] = defaultdict(set)
    found = list(modules(room))
    parts = {_part(module.name, prefix) for module in found if module.name.count(".") > 2}
    for module in found:
        here = _part(module.name, prefix)
        if here not in parts:
            continue
        for node in _imports(module.tree):
            there = _part(node, prefix)
            if node.startswith(prefix) and there in parts and there != here:
                imports[here].add(there)
    arrows = {
        (above, below)
        for above, those in imports.items()
        for below in those
        if not _implied(above, below, imports)
    }
    return ["flowchart TD", *(f"    {above} --> {below}" for above, below in sorted(arrows))]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that are imported at run time."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _part(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).split(".")[0]


def _implied(above: str, below: str, imports: Mapping[str, set[str]]) -> bool:
    """True if a longer way leads from one part to the other."""
    seen: set[str] = set()
    ways = [part for part in imports.get(above, ()) if part != below]
    while ways:
        if (part := ways.pop()) == below:
            return True
        if part not in seen:
            seen.add(part)
            ways += imports.get(part, ())
    return False


def with_pictures(page: str, pictures: Mapping[str, Sequence[str]]) -> str:
    """Return a page with each generated region filled with its picture."""

    def filled(region: re.Match[str]) -> str:
        lines = pictures[region["name"]]
        return "\n".join(
            [f"<!-- generated: {region['name']} -->", "```mermaid", *lines, "```", "<!-- end -->"]
        )

    return re.sub(r"<!-- generated: (?P<name>[a-z-]+) -->.*?<!-- end -->", filled, page, flags=re.DOTALL)


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Return a page with a generated region filled with a table."""
    begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
    return re.sub(f"{begin}.*?{end}", "\n".join((begin, "", *lines, "", end)), page, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """Return the generated pages by their path."""
    drawn, install = (
        (ROOT / "docs" / "architecture.md", ROOT / "docs" / "reference" / "rooms.md"),
        ROOT / "docs" / "install.md",
    )
    pictures = {
        "states": states_picture(),
        "queue-rooms": rooms_picture("queue"),
        "fluxion-rooms": rooms_picture("fluxion"),
    }
    return {
        ROOT / "docs" / "reference" / "logs.md": logs_page(log_events(list(modules(*PROGRAMS)))),
        **{ROOT / "docs" / "reference" / f"{name}.md": page() for name, page in REFERENCES.items()},
        **{page: with_pictures(page.read_text(), pictures) for page in drawn},
        install: with_table(install.read_text(), "kubernetes-versions", versions_table()),
    }


def main() -> int:
    """Write the pages, or name those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; end with 1 if a page differs from the code"
    )
    check = parser.parse_args().check
    differing = {
        path: text for path, text in pages().items() if not path.exists() or path.read_text() != text
    }
    for path, text in differing.items():
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(
            f"{path.relative_to(ROOT)} "
            f"{'differs from the code: run python docs/generate.py' if check else 'written'}"
        )
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
