"""`kubectl fluxqueue`: the kubectl plugin for people who use the queue.

kubectl runs this program for ``kubectl fluxqueue ...``, so flags, output formats, exit codes and errors are
like kubectl's. It uses the person's own credentials and permissions. Most of its time is the start of the
interpreter and imports, so it uses the standard library (see `fluxqueue.cli.api_client`), and imports only
the module of the command that was typed (`fluxqueue.cli.verbs`).
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.streams import drop_output, ready_streams
from fluxqueue.cli.usage_errors import UsageParser
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig

if TYPE_CHECKING:
    import argparse

__all__ = ["VERBS", "Verb", "main", "plugin_parser", "split_words", "verb_parser"]

_FAILED = 1
_INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_DRY_RUNS = ("submit", "queue")
"""Commands whose --dry-run has a value."""


@dataclass(frozen=True)
class Verb:
    """A command: its module below `fluxqueue.cli.verbs`, and what it does."""

    module: str
    summary: str


VERBS: dict[str, Verb] = {
    "submit": Verb("submit", "submit a Job: a script, or a command in an image"),
    "jobs": Verb("jobs", "the queue as a table"),
    "top": Verb("top", "work, nodes and queues on a screen that stays open, with keys"),
    "explain": Verb("explain", "explain one workload: why it waits, where it runs"),
    "efficiency": Verb("efficiency", "what a workload asked for, and what it uses of that"),
    "wait": Verb("wait", "wait until workloads have started or ended"),
    "logs": Verb("logs", "what all pods of a workload print"),
    "shell": Verb("shell", "a shell, or a command, in a pod that runs"),
    "nodes": Verb("nodes", "the nodes: state, reason, and use"),
    "graph": Verb("nodes", "the topology as a tree, with its use"),
    "queues": Verb("objects", "the queues"),
    "queue": Verb("queue", "create, hold, resume or drain queues"),
    "reservations": Verb("objects", "what is set aside for people"),
    "shares": Verb("order", "the accounts: shares, use, and fair-share factors"),
    "priority": Verb("order", "what the priorities of waiting workloads are made of"),
    "hold": Verb("edits", "keep a waiting workload from starting"),
    "release": Verb("edits", "let a held workload start"),
    "cancel": Verb("edits", "end a workload: a Job is suspended, a waiting pod is deleted"),
    "prioritize": Verb("edits", "change the priority of a waiting workload"),
    "move": Verb("edits", "move a waiting workload to another queue"),
    "requeue": Verb("requeue", "stop a Job that runs, and have it wait again"),
    "history": Verb("accounting", "work that has ended, as sacct shows it"),
    "report": Verb("accounting", "what was used, as sreport sums it"),
    "stats": Verb("accounting", "throughput, waits and use of nodes over time"),
    "doctor": Verb("operations", "compare the cluster, the queue's tables and its graph"),
    "uninstall": Verb("operations", "removes fluxqueue from a cluster; releases or keeps what it holds"),
    "completion": Verb("completion", "what a shell needs to complete commands, options and names"),
    "version": Verb(
        "operations", "versions of this program and of the server, and the state of the queue's replicas"
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin.

    Returns
    -------
    int
        0, or 1 for any failure, as kubectl does; 130 after Ctrl-C.
    """
    debug = os.environ.get("FLUXQUEUE_DEBUG", "") not in ("", "0")
    words = list(sys.argv[1:] if argv is None else argv)
    ready_streams()
    try:
        try:
            return _run(words)
        finally:
            # Here, and not at the end of the interpreter, whose complaint about a closed pipe or a full disk
            # nobody understands.
            sys.stdout.flush()
    except (InvalidKubeconfig, ClusterError) as error:
        if isinstance(error, InvalidKubeconfig):
            print(f"error: {error}", file=sys.stderr)
        else:
            from fluxqueue.cli.remedies import described
            from fluxqueue.cli.tables import printable

            print(printable(described(error), lines=True), file=sys.stderr)
        return _FAILED
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "fluxqueue"):
            raise
        print(
            f"error: this needs the Python package {package}, which is not installed: "
            "pip install 'fluxqueue-hpc[server]'",
            file=sys.stderr,
        )
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            drop_output()
            told = f"error: the output cannot be written ({error.strerror}): write it elsewhere"
            print(told, file=sys.stderr)
            return _FAILED
        from fluxqueue.cli.crashes import report

        report("kubectl fluxqueue", error, debug=debug, log_is_stderr=False)
        return _FAILED


def _run(words: Sequence[str]) -> int:
    if words and words[0] == "--version":
        from fluxqueue.api.release import version

        print(f"kubectl-fluxqueue {version()}")
        return 0
    if words and words[0] == "help":
        words = [*words[1:2], "--help"]
    parser = plugin_parser(words)
    # What comes after -- is a command of the person, which argparse would mix with ours.
    own, after = split_words(words)
    arguments, unknown = parser.parse_known_args(own)
    if unknown:
        of_command = verb_parser(arguments.command) if arguments.command is not None else parser
        of_command.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.after_dashes = after
    if arguments.command is None:
        parser.print_help()
        return 0
    command: Callable[[argparse.Namespace], int] = arguments.run
    return command(arguments)


def plugin_parser(words: Sequence[str] | None = None) -> UsageParser:
    """Return the parser of a command line; the options of a command are known if its name is among the words
    (None: of all).
    """
    common = _common_options()
    parser = UsageParser(
        prog="kubectl fluxqueue",
        description="What waits and what runs in fluxqueue, and why.",
        parents=[common],
    )
    parser.epilog = (
        "'help COMMAND' explains a command; '--version' is that of this program, "
        "'version' also that of the cluster."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=UsageParser)
    typed = set(VERBS if words is None else words)
    for name, verb in VERBS.items():
        command: UsageParser = commands.add_parser(name, parents=[common], help=verb.summary)
        if name in typed:
            _fill(command, name)
    return parser


def verb_parser(name: str) -> UsageParser:
    """Return the parser of one command."""
    command = UsageParser(prog=f"kubectl fluxqueue {name}", parents=[_common_options()])
    _fill(command, name)
    return command


def _fill(command: UsageParser, name: str) -> None:
    verb = VERBS[name]
    module: Any = importlib.import_module(f"fluxqueue.cli.verbs.{verb.module}")
    command.description = f"{verb.summary[0].upper()}{verb.summary[1:]}."
    module.add_options(name, command)
    command.example = command.example or f"kubectl fluxqueue {name}"
    command.epilog = f"example: {command.example}"
    command.set_defaults(run=module.run)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our words and those after ``--``.

    ``--dry-run`` has a value only after ``=``, as kubectl's. What follows ``--sort`` is its value, also with
    a minus sign before it.
    """
    at = words.index("--") if "--" in words else len(words)
    own = list(words[:at])
    if "--sort" in own[:-1]:
        before = own.index("--sort")
        own[before : before + 2] = [f"--sort={own[before + 1]}"]
    if any(word in _DRY_RUNS for word in own):
        own = ["--dry-run=client" if word == "--dry-run" else word for word in own]
    return own, list(words[at + 1 :])


def _common_options() -> UsageParser:
    import argparse

    common = UsageParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "-n", "--namespace", metavar="NAME", help="namespace; that of the context if not given"
    )
    common.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    common.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig to read instead of KUBECONFIG or ~/.kube/config"
    )
    return common
