"""`fluxqueue`: the command for all programs.

It parses only its own options and the name of a program. Then it imports that program and passes the
remaining arguments on. So ``fluxqueue --help`` is as fast as Python itself, an image needs only the libraries
of the programs that it runs, and each program has its own parser.

An unexpected exception of a program is reported here in one sentence. A service logs to standard error, so
its traceback is printed there. The traceback of any other command is written to a file. ``--debug`` (or
``FLUXQUEUE_DEBUG=1``) prints it in both cases.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["PROGRAMS", "Program", "main"]

_INTERRUPTED = 130
_USAGE = 2
_CRASHED = 1


@dataclass(frozen=True)
class Program:
    """A program: the module with its ``main(argv)``, and whether it is a service that logs to standard
    error.
    """

    module: str
    summary: str
    service: bool = False


PROGRAMS: dict[str, Program] = {
    "webhook": Program(
        "fluxqueue.webhook.main", "HTTPS admission server: holds and pins Jobs and Pods", service=True
    ),
    "queue": Program(
        "fluxqueue.queue.main", "the queue: intake, scheduling, release, tracking", service=True
    ),
    "scheduler": Program(
        "fluxqueue.scheduler_plugin.main",
        "binds released pods to exactly the nodes the queue chose",
        service=True,
    ),
    "fluxion": Program("fluxqueue.fluxion.main", "the resource graph and matcher behind gRPC", service=True),
    "dashboard": Program(
        "fluxqueue.dashboard.main", "the queue in a browser, with the rights of who looks", service=True
    ),
    "rest": Program(
        "fluxqueue.rest.main", "the REST service of a MiniCluster, next to its lead broker", service=True
    ),
    "minicluster": Program(
        "fluxqueue.cli.minicluster", "what a MiniCluster would become, without a cluster; CURVE certificates"
    ),
    "simulate": Program("fluxqueue.queue.simulator.main", "simulates policies: traces, models, comparisons"),
    "uninstall": Program(
        "fluxqueue.cli.uninstall.command", "removes fluxqueue from a cluster; releases or keeps what it holds"
    ),
    "verify": Program(
        "fluxqueue.cli.verify", "asks an installation's webhook, queue and doctor; the chart's helm test"
    ),
    "local": Program("fluxqueue.local.main", "a local cluster on this machine; the demo"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one program.

    Parameters
    ----------
    argv
        Arguments after `fluxqueue`; by default those of the process.

    Returns
    -------
    int
        Exit code: that of the program, 2 for an invalid command line, 130 after Ctrl-C, 1 for an unexpected
        failure.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("FLUXQUEUE_DEBUG", "") not in ("", "0")
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-h", "--help"):
            return _help()
        if option == "--version":
            return _version()
        if option != "--debug":
            return _refuse(f"{option!r} is not an option of fluxqueue")
        debug = True
    if not words or words[0] == "help":
        return _help()
    name, *rest = words
    if name == "version":
        return _version()
    program = PROGRAMS.get(name)
    if program is None:
        return _refuse(f"{name!r} is not a command{_suggestion(name)}")
    return _run(name, program, rest, debug)


def _run(name: str, program: Program, argv: list[str], debug: bool) -> int:
    from fluxqueue.cli.streams import drop_output, ready_streams

    ready_streams()
    try:
        try:
            return _load(program)(argv) or 0
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        drop_output()  # the reader of the output (`| head`) has ended, which is no error
        return 0
    except _MissingProgram as error:
        print(f"fluxqueue {name}: {error}", file=sys.stderr)
        return _CRASHED
    except Exception as error:
        from fluxqueue.cli.crashes import report

        report(
            f"fluxqueue {name}", error, debug=debug, log_is_stderr=program.service and not sys.stderr.isatty()
        )
        return _CRASHED


class _MissingProgram(Exception):
    """The program is not part of this installation."""


def _load(program: Program) -> Callable[[list[str]], int | None]:
    import importlib

    try:
        entry: Callable[[list[str]], int | None] = importlib.import_module(program.module).main
    except ModuleNotFoundError as error:
        raise _MissingProgram(
            f"this installation has no {error.name}: pip install 'fluxqueue-hpc[server]', "
            "or run it from an image"
        ) from error
    return entry


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, [*PROGRAMS, "version", "help"], n=2)
    return f"; did you mean {' or '.join(repr(word) for word in close)}?" if close else ""


def _refuse(sentence: str) -> int:
    print(f"fluxqueue: {sentence} ('fluxqueue --help' lists the commands)", file=sys.stderr)
    return _USAGE


def _help() -> int:
    rows = [
        *((name, program.summary) for name, program in PROGRAMS.items()),
        ("version", "which version this is"),
    ]
    print("usage: fluxqueue [--debug] COMMAND ...\n\nAn HPC batch queue for Kubernetes.\n\ncommands:")
    print("\n".join(f"  {name:<12}{summary}" for name, summary in rows))
    print("\noptions:\n  --debug   show the traceback of an unexpected failure (also FLUXQUEUE_DEBUG=1)")
    print(
        "\n"
        "'fluxqueue COMMAND --help' explains a command; "
        "'kubectl fluxqueue --help' the view of a cluster's queue."
    )
    return 0


def _version() -> int:
    from fluxqueue.api.release import version

    print(f"fluxqueue {version()}")
    return 0
