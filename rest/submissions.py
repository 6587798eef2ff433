"""A job that is submitted to a Flux instance, as the arguments of its `flux` command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["VARIABLE", "FluxSubmission", "InvalidWord"]

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InvalidWord(ValueError):
    """A part of a request that cannot be passed to Flux; the message names the field."""


@dataclass(frozen=True, slots=True)
class FluxSubmission:
    """A job to be submitted; None leaves a choice to Flux.

    Attributes
    ----------
    command
        The program and its arguments, unchanged.
    nodes, tasks, cores_per_task, gpus_per_task
        The size of the job.
    duration_s
        The time limit in seconds.
    environment
        Variables in addition to those of the application.
    """

    command: Sequence[str]
    nodes: int | None = None
    tasks: int | None = None
    cores_per_task: int | None = None
    gpus_per_task: int | None = None
    duration_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    name: str | None = None
    urgency: int | None = None

    def words(self, application: Mapping[str, str] | None = None) -> list[str]:
        """Return the arguments of ``flux``.

        Parameters
        ----------
        application
            The environment to begin with; None for that of this process.

        Raises
        ------
        InvalidWord
            The command is empty or begins with a dash, a variable has an invalid name, or a text cannot be
            passed to a program.
        """
        if not self.command or not self.command[0] or self.command[0].startswith("-"):
            raise InvalidWord(
                "command: the first word is the program to run; it cannot be empty or begin with a dash"
            )
        texts = (*self.command, *self.environment.values(), self.working_directory or "", self.name or "")
        if any("\0" in text for text in texts):
            raise InvalidWord("command: no word may contain a NUL character")
        if any(_is_cut(text) for text in texts):
            raise InvalidWord(
                "command: no word may contain half of a character (an unpaired surrogate): send UTF-8"
            )
        sized = (
            ("nodes", self.nodes),
            ("ntasks", self.tasks),
            ("cores-per-task", self.cores_per_task),
            ("gpus-per-task", self.gpus_per_task),
            ("time-limit", f"{self.duration_s:g}s" if self.duration_s is not None else None),
            ("urgency", self.urgency),
            ("cwd", self.working_directory),
            ("job-name", self.name),
        )
        words = ["submit", *(f"--{option}={value}" for option, value in sized if value is not None)]
        for key in self.environment:
            if not VARIABLE.fullmatch(key):
                raise InvalidWord(
                    f"environment: {key!r} cannot be the name of a variable: use letters, "
                    "digits and underscores"
                )
        if application is not None:
            words.append("--env=-*")
        variables = {**(application or {}), **self.environment}
        words += [f"--env={key}={value.replace('$', '$$')}" for key, value in variables.items()]
        return [*words, *self.command]


def _is_cut(text: str) -> bool:
    """True if a text contains a character that no program can be given, because UTF-8 has none for it."""
    return any("\ud800" <= character <= "\udfff" for character in text)
