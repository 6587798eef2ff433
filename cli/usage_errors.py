"""Messages for invalid command lines: one sentence that says what to type.

argparse reports errors in its own terms. Here each command has an example, and each type of error has a
message that uses it.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

__all__ = ["UsageParser", "whole_number"]

_FAILED = 1
_CHOICE = re.compile(
    r"argument (?P<argument>\S+): invalid choice: '(?P<given>.*)' \(choose from (?P<choices>.*)\)", re.DOTALL
)
_MISSING = re.compile(r"the following arguments are required: (?P<missing>.+)", re.DOTALL)
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<given>.+)", re.DOTALL)
_NO_VALUE = re.compile(r"argument (?P<argument>\S+): expected one argument")
_TOO_MUCH = re.compile(r"argument (?P<argument>\S+): ignored explicit argument (?P<value>.+)", re.DOTALL)
_AMBIGUOUS = re.compile(r"ambiguous option: (?P<given>\S+) could match (?P<choices>.+)", re.DOTALL)
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_OURS = re.compile(r"argument \S+: (?P<message>.+)", re.DOTALL)
_COMMAND = "COMMAND"
_OF_OTHERS = {
    "sbatch": "submit",
    "srun": "submit --attach",
    "salloc": "submit --attach",
    "squeue": "jobs",
    "sinfo": "nodes",
    "scancel": "cancel",
    "scontrol": "hold, release, requeue, move or prioritize; explain shows a job",
    "sacct": "history",
    "sacctmgr": "kubectl get fluxaccounts",
    "sreport": "report",
    "sdiag": "stats",
    "sprio": "priority",
    "sshare": "shares",
    "sview": "top",
    "smap": "top",
    "seff": "efficiency",
    "sstat": "efficiency",
    "sattach": "logs -f, or shell",
    "ssh": "shell",
    "exec": "shell",
    "qsub": "submit",
    "bsub": "submit",
    "qstat": "jobs",
    "bjobs": "jobs",
    "qdel": "cancel",
    "bkill": "cancel",
    "pbsnodes": "nodes",
    "batch": "submit",
    "run": "submit --attach",
    "ls": "jobs",
    "list": "jobs",
    "ps": "jobs",
    "queue-list": "queues",
    "describe": "explain",
    "delete": "cancel",
    "attach": "logs -f",
    "resume": "release",
}
"""What Slurm, PBS, LSF, Flux and kubectl call it."""


class UsageParser(argparse.ArgumentParser):
    """A parser that reports an error in one line, with kubectl's exit code 1.

    ``example`` is a valid command line, and ``of_others`` says what to write instead of options of other
    systems.
    """

    example = ""
    of_others: Mapping[str, str] = {}

    def error(self, message: str) -> NoReturn:
        """Print the message and exit."""
        self.exit(_FAILED, f"error: {self._sentence(message)} (see '{self.prog} --help')\n")

    def _meant(self, option: str) -> str:
        """Return what is meant by an option that does not exist: another system's, or one that is close;
        empty if neither is known.
        """
        if (ours := self.of_others.get(option)) is not None:
            return f": {ours}"
        known = [each for each in self._option_string_actions if each.startswith("--")]
        close = difflib.get_close_matches(option, known, n=1, cutoff=0.7) if option.startswith("--") else []
        return f": did you mean {close[0]}?" if close else ""

    def _sentence(self, message: str) -> str:
        command = self.prog.rpartition(" ")[2]
        such_as = f", such as {self.example}" if self.example else ""
        if match := _CHOICE.fullmatch(message):
            choices = match["choices"].replace("'", "")
            if match["argument"] == _COMMAND:
                return _no_command(match["given"], choices.split(", "))
            return f"{match['argument']} takes {choices}, not {match['given']!r}"
        if match := _MISSING.fullmatch(message):
            return f"{command} needs {match['missing'].replace(', ', ' and ')}{such_as}"
        if match := _UNKNOWN.fullmatch(message):
            meant = self._meant(match["given"].split(" ")[0].partition("=")[0])
            example = f": an example is {self.example}" if self.example else ""
            return f"{command} does not understand {match['given']!r}{meant or example}"
        if match := _NO_VALUE.fullmatch(message):
            return f"{match['argument']} needs a value{such_as}"
        if match := _AMBIGUOUS.fullmatch(message):
            return (
                f"{command} does not understand {match['given']!r}: it is "
                f"{match['choices'].replace(', ', ' or ')}"
            )
        if match := _TOO_MUCH.fullmatch(message):
            return f"{match['argument']} takes no value: leave {match['value']} out"
        return match["message"] if (match := _OURS.fullmatch(message)) else message


def _no_command(given: str, commands: Sequence[str]) -> str:
    """Return that there is no such command, with the one that is meant:
    a name of another system, or one that is close.
    """
    if (ours := _OF_OTHERS.get(given)) is not None:
        return f"there is no command {given!r}: here it is {ours}"
    if close := difflib.get_close_matches(given.lower(), commands, n=2, cutoff=0.6):
        return f"there is no command {given!r}: did you mean {' or '.join(close)}?"
    return f"there is no command {given!r}: there are {', '.join(commands)}"


def whole_number(what: str, example: str) -> Callable[[str], int]:
    """Return a reader of whole numbers; ``what`` names the number in messages,
    ``example`` is a valid command line.
    """

    def read(text: str) -> int:
        if _WHOLE.fullmatch(text) is None:
            raise argparse.ArgumentTypeError(
                f"{what} is a whole number at the end, such as {example}: {text!r} is none"
            )
        return int(text)

    return read
