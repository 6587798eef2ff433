"""The commands of `kubectl fluxqueue` and `fluxqueue` that pages show:
in blocks, after a prompt, and within sentences.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reference_cli import parser_of

from fluxqueue.cli import plugin
from fluxqueue.cli.main import PROGRAMS

__all__ = ["ShownCommand", "problem", "shown_commands"]

_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```$|^((?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^\s*(?:\$ )?((?:kubectl )?fluxqueue [^\n]*)$", re.MULTILINE)
_SPAN = re.compile(r"`((?:kubectl )?fluxqueue [^`]+)`")
_PLACEHOLDERS = {"N": "1", "PORT": "1", "SEED": "1", "...": ""}
_OWN_PARSERS = {("local", "nodes"), ("local", "demo")}
"""Subcommands that hand their arguments to a parser of their own."""


@dataclass(frozen=True)
class ShownCommand:
    """A command on a page. Within a sentence it may be without its arguments."""

    page: str
    text: str
    in_sentence: bool


def shown_commands(page: Path) -> Iterator[ShownCommand]:
    """Yield the commands of a page, each once."""
    text = page.read_text()
    seen: set[str] = set()
    for block in _BLOCK.finditer(text):
        for line in _LINE.findall((block[1] or block[2]).replace("\\\n", " ")):
            if line not in seen:
                seen.add(line)
                yield ShownCommand(page.name, line, in_sentence=False)
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        if span not in seen:
            seen.add(span)
            yield ShownCommand(page.name, " ".join(span.split()), in_sentence=True)


def problem(command: ShownCommand) -> str:
    """Return what the program says against a command; nothing if it takes it."""
    parser, words = _parser_and_words(command.text)
    if parser is None or (not words and command.in_sentence):
        return ""
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        if not ended.code or (command.in_sentence and _lacks_arguments_only(parser, words)):
            return ""
        return f"{command.page}: `{command.text}` is refused"
    return ""


def _parser_and_words(text: str) -> tuple[argparse.ArgumentParser | None, list[str]]:
    words = shlex.split(re.split(r" \| | > | && |; ", text)[0], comments=True)
    words = [word for each in words if (word := _PLACEHOLDERS.get(each, each))]
    if words[0] == "kubectl":
        return plugin.plugin_parser(), plugin.split_words(words[2:])[0]
    _, name, *rest = [*words, ""]
    if name not in PROGRAMS or (name, rest[0]) in _OWN_PARSERS:
        return None, []
    return parser_of(PROGRAMS[name].module), [word for word in rest if word]


def _lacks_arguments_only(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    """True if a sentence names a command that exists, with no arguments."""
    choices = {
        name
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name in action.choices
    }
    return len(words) == 1 and words[0] in choices
