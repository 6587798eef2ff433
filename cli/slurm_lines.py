"""The ``#SBATCH`` lines of a batch script, as options of `kubectl fluxqueue submit`.

A script of Slurm keeps its lines: those that ask for something that a Job can have are read, those that only
say where output goes are remarked upon, and every other one is refused by its name, with what to write
instead. None is dropped without a word, because work that lacks what it asked for fails late, or runs where
it should not.

A task of Slurm is a pod. What Slurm counts for each node (``--mem``, ``--gres``) is divided among the tasks
of a node. Lines that start with ``#FQ`` take precedence, so one script can serve both.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from fluxqueue.api.starttimes import InvalidStartTime, read_start_time
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.arrays import read_array
from fluxqueue.cli.slurm_options import FLAGS_REFUSED, READ, REFUSED, REMARKED
from fluxqueue.cli.submissions import MOST_TYPED, job_name
from fluxqueue.cli.time_limits import read_time_limit
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["SlurmLine", "SlurmRequest", "read_slurm_lines"]

_SIZE = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_KIB: Final = {"K": 1, "": 2**10, "M": 2**10, "G": 2**20, "T": 2**30}
_GPUS = re.compile(r"(?:gres[:/])?gpu(?::(?P<kind>[^:]*[^:0-9][^:]*))?(?::(?P<count>[0-9]{1,6}))?")
_AFTER_NOW = re.compile(r"now(?:\+(?P<number>[0-9]{1,9})(?P<unit>second|minute|hour|day|week)?s?)?")
_UNITS: Final = {
    None: (1, "s"),
    "second": (1, "s"),
    "minute": (1, "m"),
    "hour": (1, "h"),
    "day": (1, "d"),
    "week": (7, "d"),
}


@dataclass(frozen=True)
class SlurmLine:
    """The words of one line, and its number in the script."""

    number: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class SlurmRequest:
    """What the lines ask for: options of ``submit`` by their names, the beginning of the Job's name,
    and remarks for the person.
    """

    options: dict[str, Any]
    stem: str = ""
    remarks: tuple[str, ...] = ()


def read_slurm_lines(lines: Sequence[SlurmLine], path: str) -> SlurmRequest:
    """Return what the lines of a script ask for.

    Raises
    ------
    ClusterError
        A line cannot be read, or asks for what is not offered; the message names the line, the option and
        what to write.
    """
    given: dict[str, str] = {}
    line_of: dict[str, int] = {}
    remarks = []
    for line in lines:
        try:
            asked = vars(_parser().parse_args(list(line.words)))
            for name, value in asked.items():
                if (refused := {**REFUSED, **FLAGS_REFUSED}.get(name)) is not None:
                    raise _NotRead(f"--{name} is not offered: {refused[1]}")
                if name in REMARKED:
                    remarks.append(
                        f"line {line.number} of {path}: #SBATCH --{name} has no effect: {REMARKED[name][1]}"
                    )
                elif not value and name in READ:
                    raise _NotRead(f"--{name}: it is empty: give a value, or remove it")
                elif name != "requeue":  # always
                    given[name], line_of[name] = value, line.number
        except _NotRead as error:
            raise ClusterError(f"error: line {line.number} of {path}: #SBATCH {error}") from None
    reading = _Reading(given)
    try:
        return SlurmRequest(
            reading.options(), job_name(given["job-name"]) if "job-name" in given else "", tuple(remarks)
        )
    except (_NotRead, argparse.ArgumentTypeError) as error:
        number = line_of.get(reading.at, 0)
        raise ClusterError(f"error: line {number} of {path}: #SBATCH --{reading.at}: {error}") from None


class _NotRead(Exception):
    """An option that cannot be had."""


class _Parser(UsageParser):
    def error(self, message: str) -> NoReturn:
        raise _NotRead(f"cannot be read: {self._sentence(message)}")


def _parser() -> UsageParser:
    parser = _Parser(prog="submit", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    takes_value = {
        **READ,
        **{name: each[0] for each_of in (REMARKED, REFUSED) for name, each in each_of.items()},
    }
    for name, short in takes_value.items():
        parser.add_argument(*([short] if short else []), f"--{name}", dest=name)
    for name, short in {"requeue": None, **{name: each[0] for name, each in FLAGS_REFUSED.items()}}.items():
        parser.add_argument(
            *([short] if short else []), f"--{name}", dest=name, action="store_const", const=""
        )
    parser.add_argument("--exclusive", dest="exclusive", nargs="?", const="")
    return parser


class _Reading:
    """Reads the options in turn; ``at`` is the one that an error is about."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self.at = ""

    def options(self) -> dict[str, Any]:
        """Return them as options of ``submit``."""
        nodes, pods = self._shape()
        cpus = self._read("cpus-per-task", _count)
        found: dict[str, Any] = {
            "nodes": nodes,
            "pods": pods,
            "array": self._read("array", read_array),
            "cpus": None if cpus is None else str(cpus),
            "memory": self._memory(nodes, pods, cpus or 1),
            "gpus": self._gpus(nodes, pods),
            "time": self._read("time", read_time_limit),
            "queue": self._read("partition", _one_partition),
            "priority": self._read("priority", _priority),
            "begin": self._read("begin", _begin),
            "deadline": self._read("deadline", _time),
            "reservation": self._read("reservation", str),
            "exclusive": self._read("exclusive", _exclusive),
            "env": self._read("export", _variables) or None,
            "image": self._read("container-image", str),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _read(self, name: str, read: Callable[[str], Any]) -> Any:
        if (text := self._given.get(name)) is None:
            return None
        self.at = name
        return read(text)

    def _one_of(self, *names: str) -> None:
        """Refuse what is asked for in two ways: one of them would be dropped."""
        given = [name for name in names if name in self._given]
        if len(given) > 1:
            self.at = given[1]
            raise _NotRead(f"it is asked for by --{given[0]} too: leave one of them out")

    def _shape(self) -> tuple[int | None, int | None]:
        """Return nodes and pods."""
        nodes, tasks, each = (
            self._read("nodes", _nodes),
            self._read("ntasks", _count),
            self._read("ntasks-per-node", _count),
        )
        if each is None:
            return nodes, tasks
        if nodes is None:
            nodes = 1 if tasks is None else math.ceil(tasks / each)
        return nodes, nodes * each if tasks is None else tasks

    def _memory(self, nodes: int | None, pods: int | None, cpus: int) -> str | None:
        self._one_of("mem-per-cpu", "mem")
        of_cpu, of_node = self._read("mem-per-cpu", _kib), self._read("mem", _kib)
        if of_cpu is not None:
            return _quantity(of_cpu * cpus)
        return (
            None
            if of_node is None
            else _quantity(math.ceil(of_node / self._tasks_of_a_node(nodes, pods, "--mem-per-cpu")))
        )

    def _gpus(self, nodes: int | None, pods: int | None) -> int | None:
        self._one_of("gpus-per-task", "gpus", "gres", "gpus-per-node")
        each: int | None = self._read("gpus-per-task", _gpus)
        if each is None and (of_all := self._read("gpus", _gpus)) is not None:
            each = self._shared(of_all, pods or nodes or 1)
        for name in ("gres", "gpus-per-node"):
            if each is None and (of_node := self._read(name, _gres if name == "gres" else _gpus)) is not None:
                each = self._shared(of_node, self._tasks_of_a_node(nodes, pods, "--gpus-per-task"))
        return each

    @staticmethod
    def _tasks_of_a_node(nodes: int | None, pods: int | None, instead: str) -> int:
        if pods is None or pods == 1:
            return 1
        if nodes is None:
            raise _NotRead(
                f"it counts for a node, and how many of the {pods} tasks share one is not said: "
                f"write --nodes too, or {instead}"
            )
        return math.ceil(pods / nodes)

    @staticmethod
    def _shared(gpus: int, tasks: int) -> int:
        if gpus % tasks:
            raise _NotRead(f"{gpus} GPUs cannot be divided among {tasks} tasks: write --gpus-per-task")
        return gpus // tasks


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) > 0):
        raise _NotRead(f"{text[:40]!r} is no whole number from 1 on")
    return int(text)


def _nodes(text: str) -> int:
    least, dash, most = text.partition("-")
    if dash and least != most:
        raise _NotRead(
            f"{text[:40]!r}: a range of nodes is the annotation fluxqueue/min-pods of a Job: "
            "write one number, or apply such a Job"
        )
    return _count(least)


def _priority(text: str) -> int:
    number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else MOST_TYPED + 1
    if abs(number) > MOST_TYPED:
        raise _NotRead(f"{text[:40]!r} is no whole number from -{MOST_TYPED} to {MOST_TYPED}")
    return number


def _kib(text: str) -> int:
    size = _SIZE.fullmatch(text)
    if size is None:
        raise _NotRead(f"{text[:40]!r} is no size: write 4000 (MiB), 16G or 1T")
    if not int(size["number"]):
        raise _NotRead(
            "0 is all memory of a node for Slurm, which is not offered: write a size, "
            "and --exclusive if nobody shares the node"
        )
    return int(size["number"]) * _KIB[size["unit"].upper()]


def _quantity(kib: int) -> str:
    for unit, size in (("Gi", 2**20), ("Mi", 2**10)):
        if kib % size == 0:
            return f"{kib // size}{unit}"
    return f"{kib}Ki"


def _gpus(text: str) -> int:
    """Read what ``--gpus`` and its like take: ``2``, ``v100:2``."""
    return _counted(text, _GPUS.fullmatch(text) or _GPUS.fullmatch(f"gpu:{text}"))


def _gres(text: str) -> int:
    """Read what ``--gres`` takes: ``gpu:2``."""
    return _counted(text, _GPUS.fullmatch(text))


def _counted(text: str, gpus: re.Match[str] | None) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:6])
    if "," in text:
        raise _NotRead(
            f"{text[:40]!r} are several resources: write gpu:N, "
            "and the others into the Job that submit --dry-run -o yaml prints"
        )
    if gpus is None:
        raise _NotRead(
            f"{text[:40]!r} is no number of GPUs: write gpu:2; "
            "other resources go into the Job that submit --dry-run -o yaml prints"
        )
    if gpus["kind"]:
        raise _NotRead(
            f"{text[:40]!r}: a kind of GPU is a resource of its own: "
            f"write #FQ -g {gpus['count'] or 1} --gpu-resource NAME"
        )
    return int(gpus["count"] or 1)


def _one_partition(text: str) -> str:
    if "," in text:
        raise _NotRead(f"{text[:60]!r} are several, and work waits in one queue: write one")
    return text


def _begin(text: str) -> str | None:
    if later := _AFTER_NOW.fullmatch(text):
        if not later["number"] or not int(later["number"]):
            return None
        times, unit = _UNITS[later["unit"]]
        return f"+{int(later['number']) * times}{unit}"
    return _time(text)


def _time(text: str) -> str:
    try:
        read_start_time(text)
    except InvalidStartTime as error:
        raise _NotRead(str(error)) from None
    return text


def _exclusive(text: str) -> str:
    if text:
        raise _NotRead(
            f"{text[:40]!r} is not offered: write --exclusive alone, which shares a node with nobody"
        )
    return "true"


def _variables(text: str) -> list[tuple[str, str]]:
    if text.upper() == "NONE":
        return []
    pairs = [part.partition("=") for part in text.split(",")]
    if lacking := [name for name, equals, _ in pairs if not (name and equals)]:
        raise _NotRead(
            f"{lacking[0][:40]!r}: pods have no variables of this machine: write NAME=VALUE, "
            "or remove the line"
        )
    return [(name, value) for name, _, value in pairs]
