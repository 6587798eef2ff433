"""`kubectl fluxqueue queues` and `reservations`: their options, and what they run."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

import msgspec

from fluxqueue.api import names
from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.listing import list_jobs, list_objects, objects
from fluxqueue.cli.queue_listing import queues
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_ABOUT = {
    "queues": (
        "The FluxQueues of the cluster, with what they use of their limits: workloads that run, "
        "nodes and cores."
    ),
    "reservations": (
        "The FluxReservations of the cluster: nodes that are set aside for people or for maintenance."
    ),
}
_PLURALS = {"queues": names.FLUXQUEUES, "reservations": names.FLUXRESERVATIONS}
_DAY_S = 86_400
_FORBIDDEN = 403
_MOST_LINES = 200


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.description = _ABOUT[verb]
    command.add_argument(
        "-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output"
    )
    command.add_argument("--no-headers", action="store_true", help="no line of titles")
    if verb == "reservations":
        command.example = "kubectl fluxqueue reservations --gantt --hours 8h"
        command.add_argument(
            "--gantt",
            action="store_true",
            help="as a picture, with the work that runs and that has a planned start",
        )
        command.add_argument(
            "--hours",
            default=_DAY_S,
            type=_length,
            metavar="TIME",
            help="how long the picture is: 8h, 2d (default: 1d)",
        )
        command.add_argument("--ascii", action="store_true", help="draw with characters of ASCII")


def run(arguments: argparse.Namespace) -> int:
    """Print the objects of a kind, or the picture."""
    chosen = connection_of(arguments)
    with ApiClient(chosen) as client:
        if arguments.command == "reservations" and arguments.gantt:
            if arguments.output:
                raise ClusterError("error: --gantt is a picture: leave it out, or -o")
            return _gantt(client, namespace_of(arguments, chosen), arguments)
        if arguments.command == "queues" and arguments.output in ("", "wide"):
            return queues(
                client, sys.stdout, now(), wide=arguments.output == "wide", titles=not arguments.no_headers
            )
        return objects(
            client,
            _PLURALS[arguments.command],
            sys.stdout,
            output=arguments.output,
            titles=not arguments.no_headers,
        )


def _gantt(client: ApiClient, namespace: str, arguments: argparse.Namespace) -> int:
    from fluxqueue.api.fluxreservations import FluxReservation
    from fluxqueue.cli.fitting import line_width
    from fluxqueue.cli.gantt import Chart, chart, job_bars, reservation_bars

    plain = arguments.ascii or "utf" not in (sys.stdout.encoding or "").lower()
    view = Chart(
        now().replace(second=0, microsecond=0),
        timedelta(seconds=arguments.hours),
        line_width(sys.stdout) or 80,
        plain,
    )
    raw, _ = list_objects(client, names.FLUXRESERVATIONS)
    try:
        listed, _ = list_jobs(client, None)
        namespaces = True
    except ApiRefused as error:
        if error.status != _FORBIDDEN:
            raise
        listed, _ = list_jobs(client, namespace)
        namespaces = False
        sys.stderr.write(
            f"Only the work of namespace {namespace} is shown: you may not list the FluxJobs of all.\n"
        )
    bars = reservation_bars([msgspec.json.decode(item, type=FluxReservation) for item in raw], view)
    bars += job_bars([item.job for item in listed], view, namespaces=namespaces)
    if not bars:
        print("Nothing is set aside, runs or has a planned start within this time.", file=sys.stderr)
        return 0
    sys.stdout.write(chart(bars[:_MOST_LINES], view))
    if len(bars) > _MOST_LINES:
        print(f"... and {len(bars) - _MOST_LINES} more", file=sys.stderr)
    return 0


def _length(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None
