"""`kubectl fluxqueue queues` and `reservations`: their options, and what they run."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.listing import objects
from fluxqueue.cli.sessions import connection_of
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_ABOUT = {
    "queues": "The FluxQueues of the cluster.",
    "reservations": "The FluxReservations of the cluster: nodes that are set aside for people or for maintenance.",
}
_PLURALS = {"queues": names.FLUXQUEUES, "reservations": names.FLUXRESERVATIONS}


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.description = _ABOUT[verb]
    command.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    command.add_argument("--no-headers", action="store_true", help="no line of titles")


def run(arguments: argparse.Namespace) -> int:
    """Print the objects of a kind."""
    with ApiClient(connection_of(arguments)) as client:
        return objects(client, _PLURALS[arguments.command], sys.stdout, output=arguments.output, titles=not arguments.no_headers)
