"""`kubectl fluxqueue top`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_LEAST_S, _MOST_S = 0.2, 3_600.0


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Work, nodes and queues on a screen that stays open. Enter explains the workload under the cursor; "
        "h holds, r releases and c cancels it; / filters, q quits. It needs Textual: "
        "pip install 'fluxqueue-hpc[top]'."
    )
    command.example = f"kubectl fluxqueue {verb} -A"
    command.add_argument("-A", "--all-namespaces", action="store_true", help="work of all namespaces")
    command.add_argument(
        "--refresh",
        default=1.0,
        type=_seconds,
        metavar="SECONDS",
        help="how often the screen shows changes (default: 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the screen until the person quits."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ClusterError(
            "error: top needs a terminal: kubectl fluxqueue jobs -w prints a line for each change"
        )
    try:
        from fluxqueue.cli.top import show
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "textual":
            raise
        raise ClusterError("error: top needs the package textual: pip install 'fluxqueue-hpc[top]'") from None
    from fluxqueue.cli.live_queue import LiveQueue

    chosen = connection_of(arguments)
    with ApiClient(chosen) as client:
        client.get("/version")  # what is wrong with the connection is said here, not on the screen
    namespace = namespace_of(arguments, chosen)
    live = LiveQueue(lambda: ApiClient(chosen), None if arguments.all_namespaces else namespace, namespace)
    return show(live, now, refresh_s=arguments.refresh, namespaces=arguments.all_namespaces)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_S <= seconds <= _MOST_S:
        raise argparse.ArgumentTypeError(
            f"--refresh is a number of seconds from {_LEAST_S:g} to {_MOST_S:g}: {text[:60]!r} is none"
        )
    return seconds
