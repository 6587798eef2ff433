"""Commands that people write in one string, made safe to start.

The Flux Operator pastes ``command`` into a script, where it is expanded once without quotes:
``echo a && echo b`` prints ``a && echo b``, and a quotation mark breaks the script. Here a command is one of
two things, depending on its content. Plain or quoted words are an argument vector, and every word reaches the
program unchanged. A command that needs a shell (a variable, ``&&``, a pipe, several lines) becomes a file
that bash runs once in each task, where the variables of the task exist.

Every text is read in one pass, in time proportional to its length. `shlex` would take longer: it reads
character by character and appends each one to a word.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

__all__ = ["Command", "array", "assignment", "batch_lines", "exports", "parse_command", "words"]

_SHELL = re.compile(r"[$`&|;<>(){}*?\[\]~!#\n\\]")
_LIVE_IN_QUOTES = re.compile(r"[$`!\\]")
_PIECE = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<plain>[^ \t\r\n'"\\]+)|'(?P<single>[^']*)'|"""
    r""""(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|\\(?P<escaped>.)""",
    re.DOTALL,
)
_SPACE = re.compile(r"[ \t\r\n]+")
_QUOTING = re.compile(r"['\"\\]")
_LONGEST_WORDS = 8_192
"""Maximum characters of a command that is split into words.
A longer one is run by bash, with the same effect."""
_LONGEST_OPTIONS = 4_096
"""Maximum characters of the options at the beginning of a batch line."""
_ESCAPED_IN_QUOTES = re.compile(r"\\([\"\\])")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*(?:=\S*)?|-[A-Za-z]\S+)\s+")
_OPTION_VALUE = re.compile(r"([0-9]+\S*)\s+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})")
_KEYWORDS = {
    "if",
    "for",
    "while",
    "until",
    "case",
    "select",
    "function",
    "time",
    "cd",
    "export",
    "set",
    "source",
    ".",
    "eval",
    "exec",
    "ulimit",
}
"""First words that are bash keywords or builtins."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: words, or a text for bash. Never both; neither if nothing was given."""

    words: tuple[str, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.words or self.text)


def parse_command(text: str) -> Command:
    """Parse a command.

    Parameters
    ----------
    text
        The text of ``spec.containers[].command``.

    Returns
    -------
    Command
        Words if bash would only split and unquote them; else the text, for a file.
    """
    stripped = text.strip()
    if not stripped:
        return Command()
    found = _words_of(stripped) if len(stripped) <= _LONGEST_WORDS else None
    return Command(words=found) if found else Command(text=text if text.endswith("\n") else f"{text}\n")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a field of options (``optionFlags``, ``submitCommand``, ``commands.prefix``).

    Unbalanced quotes stay as written: such a field is validated at admission, and rendering never fails.
    """
    try:
        return _split(_pieces(text))
    except ValueError:
        return tuple(text.split())


def batch_lines(text: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return the lines of a batch: the number from 0 (used in the output's name), the line as written, and
    the words to submit.

    A line that needs a shell gets one in its task. Empty lines count, but are left out.
    """
    lines = []
    for number, raw in enumerate(text.split("\n")):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        command = parse_command(line)
        lines.append((number, line, command.words or _with_options(line)))
    return lines


def array(name: str, values: tuple[str, ...] | list[str]) -> str:
    """Return a bash array of exactly these values."""
    return f"{name}=({' '.join(shlex.quote(value) for value in values)})"


def assignment(name: str, value: str | bool | int) -> str:
    """Return a bash assignment of exactly this value; ``yes`` and ``no`` for truth values."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    quoted = shlex.quote(str(value))
    return f"{name}={quoted}" if quoted.startswith("'") else f"{name}='{quoted}'"


def exports(environment: dict[str, str]) -> str:
    """Return lines that export variables. ``$NAME`` and ``${NAME}`` in a value are expanded, nothing else.

    The operator wrote ``export K=V`` without quotes, and people rely on that for ``PATH: /opt/bin:$PATH``.
    """
    lines = ["# shellcheck shell=bash", "# spec.flux.environment"]
    for name, value in environment.items():
        if _ENVIRONMENT_NAME.fullmatch(name):
            lines.append(f'export {name}="{_double_quoted(str(value))}"')
    return "\n".join(lines) + "\n"


def _words_of(text: str) -> tuple[str, ...] | None:
    """Return the words of a command that bash would only split and unquote; None if it would do more."""
    if not _QUOTING.search(text):
        found = None if _SHELL.search(text) else tuple(_SPACE.split(text))
    else:
        try:
            pieces = _pieces(text)
        except ValueError:
            return None
        found = None if any(_is_live(kind, part) for kind, part in pieces) else _split(pieces)
    return None if found is None or _ASSIGNMENT.match(found[0]) or found[0] in _KEYWORDS else found


def _pieces(text: str) -> list[tuple[str, str]]:
    """Return the pieces of a text as bash reads it: kind (as in `_PIECE`) and content;
    `ValueError` for an open quote.
    """
    found: list[tuple[str, str]] = []
    at = 0
    for piece in _PIECE.finditer(text):
        if piece.start() != at:
            break
        kind = piece.lastgroup or ""
        found.append((kind, piece[kind]))
        at = piece.end()
    if at != len(text):
        raise ValueError(f"a quote is not closed, or nothing follows a backslash: {text[at : at + 20]!r}")
    return found


def _is_live(kind: str, part: str) -> bool:
    """Return True if a piece means more to a shell than its text."""
    match kind:
        case "escaped":
            return True
        case "single":
            return False
        case "double":
            return _LIVE_IN_QUOTES.search(part) is not None
    return _SHELL.search(part) is not None


def _split(pieces: list[tuple[str, str]]) -> tuple[str, ...]:
    found: list[list[str]] = []
    joins = False
    for kind, text in pieces:
        if kind != "space":
            if not joins:
                found.append([])
            found[-1].append(_ESCAPED_IN_QUOTES.sub(r"\1", text) if kind == "double" else text)
        joins = kind != "space"
    return tuple("".join(parts) for parts in found)


def _with_options(line: str) -> tuple[str, ...]:
    """Return a line for its own shell, after the options of ``flux submit`` with which it may begin."""
    options: list[str] = []
    at = 0
    while at < _LONGEST_OPTIONS and (match := _OPTION.match(line, at)):
        options.append(match[1])
        at = match.end()
        if len(match[1]) == 2 and (value := _OPTION_VALUE.match(line, at)):
            options.append(value[1])
            at = value.end()
    return (*options, "/bin/bash", "-c", line[at:])


def _double_quoted(value: str) -> str:
    out, at = [], 0
    while at < len(value):
        char = value[at]
        if char == "$" and not _REFERENCE.match(value, at):
            out.append("\\$")
        elif char in '"`\\':
            out.append(f"\\{char}")
        else:
            out.append(char)
        at += 1
    return "".join(out)
