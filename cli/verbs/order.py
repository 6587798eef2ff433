"""`kubectl fluxqueue shares` and `priority`: their options, and what they run."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    if verb == "priority":
        command.description = "The priority by which each waiting workload is ordered, and its parts."
        command.add_argument(
            "name", nargs="*", metavar="NAME", help="only these FluxJobs or objects (lammps, job/lammps)"
        )
        command.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
        command.add_argument("-q", "--queue", default="", metavar="QUEUE", help="only this queue")
        command.add_argument(
            "-o", "--output", default="", choices=["wide"], help="wide: also what the parts come from"
        )
        command.add_argument("-w", "--weights", action="store_true", help="the weights of the queues instead")
    else:
        command.description = (
            "The accounts as a tree: what each is to have, what it used, and its fair-share factor."
        )
    command.add_argument("--no-headers", action="store_true", help="no line of titles")


def run(arguments: argparse.Namespace) -> int:
    """Print shares or priorities."""
    chosen = connection_of(arguments)
    if arguments.command == "shares":
        from fluxqueue.cli.shares import shares

        with ApiClient(chosen) as client:
            return shares(client, sys.stdout, titles=not arguments.no_headers)
    from fluxqueue.cli.priorities import PriorityQuery, priorities

    query = PriorityQuery(
        namespace=None if arguments.all_namespaces else namespace_of(arguments, chosen),
        names=tuple(arguments.name),
        queue=arguments.queue,
        wide=arguments.output == "wide",
        weights=arguments.weights,
        titles=not arguments.no_headers,
    )
    with ApiClient(chosen) as client:
        return priorities(client, query, sys.stdout, now())
