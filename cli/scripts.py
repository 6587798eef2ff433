"""Batch scripts: their interpreter, and the options in their ``#FQ`` and ``#SBATCH`` lines.

The lines stand before the first command of the script. ``#FQ`` lines have the options of
`kubectl fluxqueue submit`, ``#SBATCH`` lines those of Slurm (`fluxqueue.cli.slurm_lines`); what is typed
takes precedence. Lines for other systems are refused, and those that stand too late are remarked upon, since
work without its options is not what its author wants. The script travels in the arguments of the container,
so that nothing but the Job has to be created and deleted.
"""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.slurm_lines import SlurmLine

__all__ = ["Script", "literal", "read_script"]

_OPTIONS = re.compile(
    r"#(?P<system>FQ|SBATCH|PBS|BSUB|MSUB|QSUB|flux|COBALT|OAR|PJM|\$):*(?:\s(?P<options>.*))?", re.DOTALL
)
_READ = ("FQ", "SBATCH")
_ALMOST = re.compile(r"\s*#\s*(?P<word>[A-Za-z]{2,8}):*\s*-{1,2}[A-Za-z].*", re.DOTALL)
"""A comment that looks like a line of options. Two hashes are how a line is switched off."""
_SLURM_IN_SCRIPT = re.compile(r"\b(?P<word>srun|SLURM_[A-Z_]+)\b")
_LARGEST = 100_000
"""Bytes: the kernel refuses an argument of more than 128 KiB."""
_SHEBANG = re.compile(r"#!\s*(\S+)(?:\s+(.*\S))?\s*")
_EXPANDED = re.compile(r"\$(?=[$(])")
_WITH_C = re.compile(r"(ba|da|k|z|a)?sh|python[0-9.]*")


@dataclass(frozen=True)
class Script:
    """A batch script.

    Attributes
    ----------
    name
        Of the file, without its suffix.
    command
        What runs it: the interpreter, with the text as an argument, and the name of the file as ``$0``.
    options
        Words of its ``#FQ`` lines.
    slurm_lines
        Its ``#SBATCH`` lines.
    remarks
        What its author may not expect.
    """

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    slurm_lines: tuple[SlurmLine, ...] = ()
    remarks: tuple[str, ...] = ()


def read_script(path: str) -> Script:
    """Read a script.

    Raises
    ------
    ClusterError
        The file cannot be read, is too large, or has no interpreter that takes a text; the message has the
        remedy.
    """
    try:
        content = Path(path).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ClusterError(
            f"error: the script {path} cannot be read ({error.strerror}); a command comes after --"
        ) from None
    except UnicodeDecodeError:
        raise ClusterError(
            f"error: {path} is no script, since it is not UTF-8 text: put the program into the image, "
            "and it after --"
        ) from None
    if len(content) > _LARGEST or "\0" in text:
        raise ClusterError(
            f"error: the script {path} is longer than {_LARGEST} bytes: have it in the image, "
            "and write it after --"
        )
    if "\r\n" in text:
        raise ClusterError(
            f"error: the lines of the script {path} end as on Windows, which no shell understands: "
            f"convert it (dos2unix {path})"
        )
    lines = text.split("\n")
    words, slurm, remarks = _read_lines(path, lines)
    return Script(Path(path).stem, (*_interpreter(path, lines), literal(text), path), words, slurm, remarks)


def literal(text: str) -> str:
    """Return a text that the kubelet leaves as it is: in arguments, it replaces ``$(NAME)`` and ``$$``."""
    return _EXPANDED.sub("$$", text)


def _interpreter(path: str, lines: list[str]) -> list[str]:
    match = _SHEBANG.fullmatch(lines[0]) if lines else None
    if match is None:
        raise ClusterError(
            f"error: the script {path} does not name its interpreter: write #!/bin/sh, or another, "
            "into its first line"
        )
    words = [match[1], *(shlex.split(match[2]) if match[2] else ())]
    program = (
        next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        if words[0].endswith("/env")
        else words[0]
    )
    if not _WITH_C.fullmatch(Path(program).name):
        raise ClusterError(
            f"error: the script {path} wants {program or words[0]}, "
            "and only shells and Python take a script as text: "
            "have it in the image, and write it after --"
        )
    return [*(word for word in words if word != "-S"), "-c"]


def _read_lines(
    path: str, lines: list[str]
) -> tuple[tuple[str, ...], tuple[SlurmLine, ...], tuple[str, ...]]:
    """Return the words of the ``#FQ`` lines, the ``#SBATCH`` lines, and remarks."""
    words: list[str] = []
    slurm: list[SlurmLine] = []
    remarks: list[str] = []
    begun = False
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            begun = True
        if (match := _OPTIONS.fullmatch(line)) is None:
            if not begun and (meant := _meant(line)):
                remarks.append(
                    f"line {number} of {path} is not read: options stand after #{meant} and a space, "
                    "at the start of a line"
                )
            continue
        system, where = match["system"], f"line {number} of {path}"
        if begun:
            if system in _READ:
                remarks.append(f"{where} is not read: #{system} lines stand before the first command")
            continue
        if system not in _READ:
            raise ClusterError(
                f"error: {where}: #{system} lines are not read: "
                "write its options as #FQ (kubectl fluxqueue submit --help)"
            )
        found = _split(where, line, match["options"] or "")
        if system == "FQ":
            words += found
        else:
            slurm.append(SlurmLine(number, found))
    if (
        slurm
        and (used := _SLURM_IN_SCRIPT.search("\n".join(line for line in lines if not line.startswith("#"))))
        is not None
    ):
        remarks.append(
            f"{path} uses {used['word']}, which is of Slurm: each pod runs the script, and "
            "JOB_COMPLETION_INDEX is its rank"
        )
    return tuple(words), tuple(slurm), tuple(remarks)


def _meant(line: str) -> str:
    """Return the word by which a comment was meant to be a line of options; empty if it is a comment."""
    almost = _ALMOST.fullmatch(line)
    word = almost["word"].upper() if almost is not None else ""
    return (
        word
        if word in _READ
        else "SBATCH"
        if word == "SLURM" or difflib.get_close_matches(word, ("SBATCH",), cutoff=0.75)
        else ""
    )


def _split(where: str, line: str, options: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(options, comments=True))
    except ValueError as error:
        raise ClusterError(f"error: {where} cannot be read ({error}): {line[:80]}") from None
