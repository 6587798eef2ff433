"""Commands as people write them in one string, made safe to start.

The Flux Operator pastes ``command`` into a script, where it is expanded once without quotes: ``echo a && echo b`` prints ``a && echo b``,
and a quotation mark breaks the script. Here a command is one of two things, decided by what it contains. Plain or quoted words are an
argument vector, and every word reaches the program as it was meant. Anything that needs a shell (a variable, ``&&``, a pipe, several
lines) is the text of a file that bash runs: once, in each task, where the variables of the task exist.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

__all__ = ["Command", "array", "assignment", "batch_lines", "exports", "parse_command", "words"]

_SHELL = re.compile(r"[$`&|;<>(){}*?\[\]~!#\n\\]")
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
"""First words that are bash's own."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: words, or a text for bash; never both, neither where nothing was said."""

    words: tuple[str, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.words or self.text)


def parse_command(text: str) -> Command:
    """Read a command.

    Parameters
    ----------
    text
        As in ``spec.containers[].command``.

    Returns
    -------
    Command
        Words where bash would do nothing but split and unquote; else the text, for a file.
    """
    stripped = text.strip()
    if not stripped:
        return Command()
    if _needs_shell(stripped):
        return Command(text=text if text.endswith("\n") else f"{text}\n")
    return Command(words=tuple(shlex.split(stripped)))


def words(text: str) -> tuple[str, ...]:
    """Words of a field that is options, not a command (``optionFlags``, ``submitCommand``, ``commands.prefix``).

    Unbalanced quotes are taken as they stand: such a field is validated where it is written, and a render never fails.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def batch_lines(text: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Lines of a batch: its number from 0 as the output's name has it, the line as written, and the words to submit.

    A line that needs a shell gets one of its own, in its task. Empty lines count and are left out.
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
    """A bash array of exactly these values."""
    return f"{name}=({' '.join(shlex.quote(value) for value in values)})"


def assignment(name: str, value: str | bool | int) -> str:
    """A bash assignment of exactly this value; yes and no for truth values."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    quoted = shlex.quote(str(value))
    return f"{name}={quoted}" if quoted.startswith("'") else f"{name}='{quoted}'"


def exports(environment: dict[str, str]) -> str:
    """Lines that export variables; ``$NAME`` and ``${NAME}`` in a value are looked up, nothing else is expanded.

    The operator wrote ``export K=V`` without quotes, and ``PATH: /opt/bin:$PATH`` is what people use it for.
    """
    lines = ["# shellcheck shell=bash", "# spec.flux.environment"]
    for name, value in environment.items():
        if _ENVIRONMENT_NAME.fullmatch(name):
            lines.append(f'export {name}="{_double_quoted(str(value))}"')
    return "\n".join(lines) + "\n"


def _needs_shell(text: str) -> bool:
    try:
        split = shlex.split(text)
    except ValueError:
        return True
    if _ASSIGNMENT.match(split[0]) or split[0] in _KEYWORDS:
        return True
    return any(_SHELL.search(part) for part in _outside_single_quotes(text))


def _outside_single_quotes(text: str) -> list[str]:
    """What bash looks at: all but what stands in single quotes; text in double quotes counts, for ``$`` and backslashes are live there."""
    parts, at, double = [""], 0, False
    while at < len(text):
        char = text[at]
        if char == "'" and not double:
            at = text.index("'", at + 1)
        elif char == '"':
            double = not double
        elif not double or char in "$`\\!":
            parts[-1] += char
        at += 1
    return parts


def _with_options(line: str) -> tuple[str, ...]:
    """A line for a shell of its own, behind the options of ``flux submit`` that it may begin with."""
    options: list[str] = []
    rest = line
    while match := re.match(r"(--?[A-Za-z][\w-]*(?:=\S*)?|-[A-Za-z]\S+)\s+", rest):
        options.append(match[1])
        rest = rest[match.end() :]
        if len(match[1]) == 2 and (value := re.match(r"([0-9]+\S*)\s+", rest)):
            options.append(value[1])
            rest = rest[value.end() :]
    return (*options, "/bin/bash", "-c", rest)


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
