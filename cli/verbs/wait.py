"""`kubectl fluxqueue wait`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser
from fluxqueue.cli.waiting import FINISHED, GOALS, Progress, wait_for

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Wait until workloads have started or ended. Exit code 1 unless all of them started, "
        "or all succeeded."
    )
    command.example = f"kubectl fluxqueue {verb} lammps --for started --timeout 10m"
    command.add_argument(
        "name", nargs="+", metavar="NAME", help="FluxJobs, or your objects: lammps, job/lammps"
    )
    command.add_argument(
        "--for",
        dest="goal",
        default=FINISHED,
        choices=list(GOALS),
        help="what to wait for (default: %(default)s)",
    )
    command.add_argument(
        "--timeout",
        default=None,
        type=_seconds,
        metavar="TIME",
        help="how long: 30s, 10m; for ever if not given",
    )
    command.add_argument("--quiet", action="store_true", help="do not say what they wait for")


def run(arguments: argparse.Namespace) -> int:
    """Wait for workloads."""
    chosen = connection_of(arguments)
    namespace = namespace_of(arguments, chosen)
    with ApiClient(chosen) as client:
        jobs = [job for name in arguments.name for job in fluxjobs_of(client, namespace, name)]
        return wait_for(
            client,
            jobs,
            arguments.goal,
            arguments.timeout,
            Progress(sys.stdout, sys.stderr, now, arguments.quiet),
        )


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None
