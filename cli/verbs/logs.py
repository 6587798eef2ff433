"""`kubectl fluxqueue logs`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.pod_logs import LogOptions, follow_logs, print_logs
from fluxqueue.cli.sessions import connection_of, namespace_of
from fluxqueue.cli.tables import wants_colour
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_MOST_RANKS = 1_000_000


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = "What all pods of a workload print; each line begins with the rank of its pod."
    command.example = f"kubectl fluxqueue {verb} -f lammps"
    command.add_argument(
        "name", metavar="NAME", help="a FluxJob, or your object: lammps, job/lammps, deployment/web"
    )
    command.add_argument(
        "-f", "--follow", action="store_true", help="go on until it has ended, also with pods that come later"
    )
    command.add_argument(
        "-c", "--container", default="", metavar="NAME", help="of the pods; the first one if not given"
    )
    command.add_argument(
        "--rank", default=frozenset(), type=_ranks, metavar="RANKS", help="only these, such as 0 or 0,4-7"
    )
    command.add_argument(
        "--tail", default=None, type=_lines, metavar="N", help="only the last lines of each pod"
    )
    command.add_argument(
        "--since", default=None, type=_seconds, metavar="TIME", help="only what is not older: 30s, 10m"
    )
    command.add_argument("--no-prefix", action="store_true", help="lines without their rank")


def run(arguments: argparse.Namespace) -> int:
    """Print logs."""
    chosen = connection_of(arguments)
    options = LogOptions(
        container=arguments.container,
        tail=arguments.tail,
        since_s=arguments.since,
        ranks=arguments.rank,
        prefix=not arguments.no_prefix,
        colour=wants_colour(sys.stdout),
    )
    with ApiClient(chosen) as client:
        jobs = fluxjobs_of(client, namespace_of(arguments, chosen), arguments.name)
        if not arguments.follow:
            return print_logs(client, jobs, options, sys.stdout, sys.stderr)
        if len(jobs) > 1:
            raise ClusterError(
                f"error: {arguments.name} has {len(jobs)} workloads, and one is followed at a time: "
                "name one of them, "
                f"such as fluxjob/{jobs[0].metadata.name}"
            )
        return follow_logs(client, jobs[0], options, sys.stdout, sys.stderr)


def _ranks(text: str) -> frozenset[int]:
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdigit() and (last.isdigit() or not dash)) or int(last or first) - int(
            first
        ) not in range(_MOST_RANKS):
            raise argparse.ArgumentTypeError(f"--rank is a list such as 0 or 0,4-7: {text[:40]!r} is none")
        ranks.update(range(int(first), int(last or first) + 1))
    return frozenset(ranks)


def _lines(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"--tail is a number of lines: {text[:40]!r} is none")
    return int(text)


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None
