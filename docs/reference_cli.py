"""The reference of commands: every option of `kubectl fluxqueue` and of the programs, from their parsers.

The texts of argparse differ between versions of Python, so the page is made of what a parser has and not of
its help.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_tables import cell, code, table

from fluxqueue.cli import plugin
from fluxqueue.cli.main import PROGRAMS

__all__ = ["cli_page", "command_lines", "parser_of"]

_HEAD = """# Commands

Written by `docs/generate.py` from the parsers. `kubectl fluxqueue` uses your kubeconfig and your rights;
every command has the options `-n`, `--context` and `--kubeconfig` of kubectl. `fluxqueue PROGRAM` starts the
programs; people use `simulate`, `local`, `minicluster` and `uninstall`, the chart starts the others.
"""
_EVERYWHERE = {"help", "namespace", "context", "kubeconfig"}


def cli_page() -> str:
    """Return the page."""
    lines = [_HEAD]
    lines += command_lines(plugin.plugin_parser(), 2)
    for name, program in PROGRAMS.items():
        if (parser := parser_of(program.module)) is not None:
            lines += command_lines(parser, 2, everything=True)
        else:
            lines += [f"## fluxqueue {name}\n", f"{program.summary[0].upper()}{program.summary[1:]}.\n"]
    return "\n".join(lines).rstrip() + "\n"


def parser_of(module: str) -> argparse.ArgumentParser | None:
    """Return the parser of a program, if it has one of its own."""
    maker = getattr(importlib.import_module(module), "_parser", None)
    parser = maker() if callable(maker) else None
    return parser if isinstance(parser, argparse.ArgumentParser) else None


def command_lines(parser: argparse.ArgumentParser, depth: int, *, everything: bool = False) -> Iterator[str]:
    """Yield a section for a command, and one for each of its subcommands."""
    yield f"{'#' * depth} {parser.prog}\n"
    if parser.description:
        yield f"{cell(parser.description)}\n"
    shown = [action for action in parser._actions if _is_shown(action, everything=everything)]
    if shown:
        yield from table(
            ("argument", "meaning"), ((_words(action), _meaning(parser, action)) for action in shown)
        )
    if example := getattr(parser, "example", ""):
        yield f"Example: `{example}`\n"
    seen: set[int] = set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                if id(below) not in seen:
                    seen.add(id(below))
                    yield from command_lines(below, min(depth + 1, 4), everything=everything)


def _is_shown(action: argparse.Action, *, everything: bool) -> bool:
    if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
        return False
    return action.dest != "help" if everything else action.dest not in _EVERYWHERE


def _words(action: argparse.Action) -> str:
    """Return an argument as it is typed."""
    metavar = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        many = {"*": f"[{value} ...]", "+": f"{value} ...", "?": f"[{value}]"}
        return code(many.get(str(action.nargs), value))
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(code(f"{option}{takes}") for option in action.option_strings)


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    said = [cell(_of_anybody(text))]
    if action.choices and action.metavar:
        said.append("one of " + ", ".join(code(str(choice)) for choice in action.choices))
    if action.required and action.option_strings:
        said.append("required")
    return "; ".join(part for part in said if part)


def _of_anybody(text: str) -> str:
    """Return text without the folders of this machine."""
    state, cache = (os.environ.get(f"XDG_{which}_HOME") for which in ("STATE", "CACHE"))
    for folder, name in ((state, "~/.local/state"), (cache, "~/.cache"), (str(Path.home()), "~")):
        text = re.sub(rf"{re.escape(folder)}(?=/)", name, text) if folder else text
    return text
