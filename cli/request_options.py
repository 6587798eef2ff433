"""The options of `kubectl fluxqueue submit` that say what is asked for, typed or in the lines of a script."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fluxqueue.api import names
from fluxqueue.api.dependencies import InvalidDependencies, parse_dependencies
from fluxqueue.api.durations import parse_duration
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.starttimes import InvalidStartTime, read_start_time
from fluxqueue.api.typedvalues import cores_problem, memory_problem, name_problem
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.arrays import read_array
from fluxqueue.cli.scripts import Script
from fluxqueue.cli.submissions import MOST_TYPED, Submission, job_name
from fluxqueue.cli.time_limits import FORMS, read_time_limit
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["InvalidOption", "add_request_options", "header_options", "read_options", "submission"]

_ANNOTATIONS: Final = {
    "time": names.DURATION_ANNOTATION,
    "priority": names.PRIORITY_ANNOTATION,
    "after": names.AFTER_ANNOTATION,
    "begin": names.BEGIN_ANNOTATION,
    "deadline": names.DEADLINE_ANNOTATION,
    "reservation": names.RESERVATION_ANNOTATION,
    "topology": names.REQUIRED_TOPOLOGY_ANNOTATION,
    "prefer_topology": names.PREFERRED_TOPOLOGY_ANNOTATION,
    "exclusive": names.EXCLUSIVE_ANNOTATION,
}
_SIMPLE: Final = ("nodes", "pods", "array", "memory", "gpus", "gpu_resource", "retries", "service_account")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}")


def add_request_options(command: UsageParser) -> None:
    """Add the options; those that are not given are not in the namespace."""
    size = command.add_argument_group("size")
    _add(size, "-N", "--nodes", "N", "pods, each on another node", _number("-N/--nodes", 1))
    _add(
        size, "--pods", None, "N", "pods in all: 1, or one for each node, if not given", _number("--pods", 1)
    )
    _add(size, "-a", "--array", "0-LAST", "tasks of their own, at most so many at once: 0-99%%10", read_array)
    _add(size, "-c", "--cpus", "CPU", "cores of each pod (default: 1)", _sound("-c/--cpus", cores_problem))
    _add(
        size,
        "-m",
        "--memory",
        "SIZE",
        "memory of each pod, such as 4Gi",
        _sound("-m/--memory", _memory_problem),
    )
    _add(size, "-g", "--gpus", "N", "GPUs of each pod", _number("-g/--gpus", 0))
    _add(
        size,
        "--gpu-resource",
        None,
        "NAME",
        "the resource that -g counts (default: nvidia.com/gpu)",
        _text("--gpu-resource"),
    )
    _add(size, "-t", "--time", "TIME", f"how long it runs at most: {FORMS}", read_time_limit)
    _add_order_and_place(command)
    _add_what_runs(command)


def _add_order_and_place(command: UsageParser) -> None:
    order = command.add_argument_group("order and place")
    _add(order, "-q", "--queue", "QUEUE", "the queue", str)
    _add(order, "-p", "--priority", "N", "higher starts earlier", _number("-p/--priority", None))
    _add(
        order,
        "--after",
        None,
        "WHAT",
        "what must have ended or started before: ok:job/prepare",
        _text("--after", parse_dependencies),
    )
    _add(
        order,
        "--begin",
        None,
        "TIME",
        "not before: +2h, 2026-12-24T18:00:00Z",
        _text("--begin", read_start_time),
    )
    _add(order, "--deadline", None, "TIME", "when it is to be done", _text("--deadline", read_start_time))
    _add(order, "--reservation", None, "NAME", "on the nodes of a FluxReservation", _text("--reservation"))
    _add(
        order,
        "--topology",
        None,
        "LEVEL",
        "all pods in one place of this level, such as one rack",
        _text("--topology"),
    )
    _add(order, "--prefer-topology", None, "LEVEL", "the same if possible", _text("--prefer-topology"))
    order.add_argument(
        "--exclusive",
        action="store_const",
        const="true",
        default=argparse.SUPPRESS,
        help="share no node with other work",
    )


def _add_what_runs(command: UsageParser) -> None:
    what = command.add_argument_group("what runs")
    _add(what, "--image", None, "IMAGE", "image of the container", str)
    _add(
        what,
        "-J",
        "--name",
        "NAME",
        "name of the Job; one is made if not given",
        _sound("-J/--name", name_problem),
    )
    what.add_argument(
        "--env",
        action="append",
        default=argparse.SUPPRESS,
        type=_pair("--env"),
        metavar="NAME=VALUE",
        help="a variable",
    )
    what.add_argument(
        "--label",
        action="append",
        default=argparse.SUPPRESS,
        type=_pair("--label"),
        metavar="KEY=VALUE",
        help="of the Job",
    )
    _add(
        what,
        "--retries",
        None,
        "N",
        "how many failed pods are replaced (default: 0)",
        _number("--retries", 0),
    )
    _add(what, "--service-account", None, "NAME", "of the pods", _text("--service-account"))
    _add(
        what,
        "--keep",
        None,
        "TIME",
        "delete the Job so long after its end, in the same forms",
        read_time_limit,
    )


def header_options(script: Script, path: str) -> dict[str, Any]:
    """Return the options in the ``#FQ`` lines of a script.

    Raises
    ------
    ClusterError
        One cannot be read; the message names the script.
    """
    try:
        return read_options(script.options)
    except InvalidOption as error:
        raise ClusterError(f"error: the #FQ lines of {path}: {error}") from None


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Return options that stand elsewhere than on the command line.

    Raises
    ------
    InvalidOption
        One cannot be read; the message is a sentence.
    """
    parser = _RaisingParser(prog="submit", add_help=False, allow_abbrev=False)
    add_request_options(parser)
    return vars(parser.parse_args(list(words)))


def submission(options: Mapping[str, Any], command: tuple[str, ...], stem: str) -> Submission:
    """Return what is asked for.

    Parameters
    ----------
    options
        The given options.
    command
        Of the container.
    stem
        What the name is made of, if none is given.

    Raises
    ------
    ClusterError
        There is no image, or a resource without a number.
    """
    if not options.get("image"):
        raise ClusterError(
            "error: submit needs --image, such as kubectl fluxqueue submit -N 2 --image example/solver -- "
            "solve input.dat"
        )
    if "gpu_resource" in options and not options.get("gpus"):
        raise ClusterError("error: --gpu-resource says which GPUs -g counts: write -g N too, or leave it out")
    annotations = {key: str(options[name]) for name, key in _ANNOTATIONS.items() if name in options}
    labels = dict(options.get("label", ())) | (
        {names.QUEUE_LABEL: options["queue"]} if "queue" in options else {}
    )
    simple = {name: options[name] for name in _SIMPLE if name in options}
    if "cpus" in options:
        simple["cpu"] = options["cpus"]
    keep = options.get("keep")
    return Submission(
        image=options["image"],
        command=command,
        name=options.get("name", ""),
        stem=job_name(stem),
        annotations=annotations,
        labels=labels,
        environment=dict(options.get("env", ())),
        keep_s=None if keep is None else parse_duration(keep),
        **simple,
    )


def _memory_problem(text: str) -> str | None:
    """Return why typed memory cannot be meant; for Slurm none is all of a node, for Kubernetes any amount."""
    if (problem := memory_problem(text)) is not None or parse_quantity(text):
        return problem
    return f"{text[:40]!r} of memory is none: write a size, or leave it out"


class InvalidOption(Exception):
    """An option cannot be read."""


class _RaisingParser(UsageParser):
    """Raises instead of ending the program."""

    def error(self, message: str) -> Any:
        raise InvalidOption(self._sentence(message))


def _add(
    group: Any, flag: str, long: str | None, metavar: str, text: str, read: Callable[[str], Any]
) -> None:
    flags = [flag] if long is None else [flag, long]
    group.add_argument(*flags, default=argparse.SUPPRESS, metavar=metavar, type=read, help=text)


def _number(flag: str, least: int | None) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else -MOST_TYPED - 1
        if not (-MOST_TYPED if least is None else least) <= number <= MOST_TYPED:
            raise argparse.ArgumentTypeError(
                f"{flag} is a whole number from {-MOST_TYPED if least is None else least} to {MOST_TYPED}: "
                f"{text[:40]!r} is none"
            )
        return number

    return read


def _sound(flag: str, problem: Callable[[str], str | None]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if (found := problem(text)) is not None:
            raise argparse.ArgumentTypeError(f"{flag}: {found}")
        return text

    return read


def _text(flag: str, check: Callable[[str], object] = str) -> Callable[[str], str]:
    """Return a reader of texts that are not empty, and that ``check`` does not refuse."""

    def read(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(f"{flag} is empty: give a value, or leave it out")
        try:
            check(text)
        except (InvalidDependencies, InvalidStartTime) as error:
            raise argparse.ArgumentTypeError(f"{flag}: {error}") from None
        return text

    return read


def _pair(flag: str) -> Callable[[str], tuple[str, str]]:
    def read(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(
                f"{flag} is a name and a value, such as {flag} NAME=VALUE: {text[:40]!r} is none"
            )
        return name, value

    return read
