"""`kubectl fluxqueue shell`: its options, and what it runs."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.sessions import connection_of, namespace_of
from fluxqueue.cli.shell import choose_pod, exec_words
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_NO_KUBECTL = (
    "error: shell runs kubectl exec, and there is no kubectl on the PATH: install it, "
    "or add its folder to PATH"
)


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Open a shell in one pod of a workload that runs, or run the command after -- there. "
        "kubectl exec does it, so you need "
        "the right to create pods/exec, which the role edit has."
    )
    command.example = f"kubectl fluxqueue {verb} lammps --rank 2 -- nvidia-smi"
    command.add_argument(
        "name", metavar="NAME", help="a FluxJob, or your object: lammps, job/lammps, pod/probe"
    )
    command.add_argument(
        "--rank",
        default=None,
        type=_rank,
        metavar="RANK",
        help="of the pod; the first that runs if not given",
    )
    command.add_argument(
        "-c", "--container", default="", metavar="NAME", help="of the pod; the first one if not given"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run ``kubectl exec`` in place of this program, where that is possible."""
    chosen = connection_of(arguments)
    with ApiClient(chosen) as client:
        jobs = fluxjobs_of(client, namespace_of(arguments, chosen), arguments.name)
        entered = choose_pod(client, jobs, arguments.name, arguments.rank)
    program = shutil.which("kubectl")
    if program is None:
        raise ClusterError(_NO_KUBECTL)
    target = [
        word
        for name in ("kubeconfig", "context")
        if (value := getattr(arguments, name, None))
        for word in (f"--{name}", str(value))
    ]
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = exec_words(
        program,
        entered,
        arguments.after_dashes,
        container=arguments.container,
        terminal=terminal,
        target=target,
    )
    print(entered.words, file=sys.stderr, flush=True)
    if os.name != "nt":  # there a program cannot become another one
        os.execv(program, words)  # noqa: S606  (no shell reads the words)
    return subprocess.call(words)


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"--rank is a whole number from 0 on: {text[:40]!r} is none")
    return int(text)
