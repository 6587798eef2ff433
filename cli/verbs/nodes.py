"""`kubectl fluxqueue nodes` and `graph`: their options, and what they run."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api.topology import DEFAULT_LEVELS, NODE_LEVEL, TopologyLevel
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.fitting import line_width
from fluxqueue.cli.node_listing import TreeOptions, each_table, grouped_table, tree
from fluxqueue.cli.node_use import NODE_STATES, chosen, read_cluster
from fluxqueue.cli.sessions import connection_of, namespace_of
from fluxqueue.cli.tables import wants_colour
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_MANY_NODES = 64


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.add_argument("name", nargs="*", metavar="NODE", help="only these nodes")
    command.add_argument(
        "-l", "--selector", default="", metavar="SELECTOR", help="only nodes with these labels"
    )
    command.add_argument(
        "--state",
        default=(),
        type=_states,
        metavar="STATE[,STATE]",
        help=f"only these: {', '.join(NODE_STATES)}",
    )
    if verb == "graph":
        command.description = (
            "The topology of the cluster as a tree, with what fluxqueue's work uses of each part."
        )
        command.example = "kubectl fluxqueue graph --depth rack"
        command.add_argument(
            "--levels",
            default=DEFAULT_LEVELS,
            type=_levels,
            metavar="TYPE=LABEL,...",
            help="levels, from the top down",
        )
        command.add_argument(
            "--depth",
            default="",
            metavar="LEVEL",
            help="the lowest level that is shown, such as rack or node",
        )
        command.add_argument("--ascii", action="store_true", help="draw with characters of ASCII")
    else:
        command.description = (
            "The nodes: their state, why they take no work, what fluxqueue's work uses of them."
        )
        command.example = "kubectl fluxqueue nodes --each --state mixed,draining"
        command.add_argument(
            "-N",
            "--each",
            action="store_true",
            help="one by one, with the work on each; so are nodes that are named",
        )
        command.add_argument(
            "-o", "--output", default="", choices=["wide"], help="wide: one by one, with all work, and memory"
        )
        command.add_argument("--no-headers", action="store_true", help="no line of titles")


def run(arguments: argparse.Namespace) -> int:
    """Print nodes."""
    connection = connection_of(arguments)
    with ApiClient(connection) as client:
        uses = chosen(
            read_cluster(client, namespace_of(arguments, connection), arguments.selector),
            arguments.name,
            arguments.state,
        )
    if not uses:
        print("No nodes found", file=sys.stderr)
        return 0
    width, colour = line_width(sys.stdout), wants_colour(sys.stdout)
    if arguments.command == "graph":
        levels: tuple[TopologyLevel, ...] = arguments.levels
        known = [name for name, _ in levels] + [NODE_LEVEL]
        deepest = arguments.depth or (NODE_LEVEL if len(uses) <= _MANY_NODES else levels[-1][0])
        if deepest not in known:
            raise ClusterError(f"error: --depth {deepest!r} is no level: there are {', '.join(known)}")
        plain = arguments.ascii or "utf" not in (sys.stdout.encoding or "").lower()
        sys.stdout.write(tree(uses, TreeOptions(levels, deepest, ascii_only=plain, width=width)))
        return 0
    titles = not arguments.no_headers
    if arguments.each or arguments.name or arguments.output == "wide":
        sys.stdout.write(
            each_table(uses, wide=arguments.output == "wide", titles=titles, width=width, colour=colour)
        )
    else:
        sys.stdout.write(grouped_table(uses, titles=titles, width=width, colour=colour))
    return 0


def _states(text: str) -> tuple[str, ...]:
    states = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if unknown := [state for state in states if state not in NODE_STATES]:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)} is no state of nodes; there are {', '.join(NODE_STATES)}"
        )
    return states


def _levels(text: str) -> tuple[TopologyLevel, ...]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and label for name, equals, label in pairs):
        raise argparse.ArgumentTypeError(
            f"--levels has pairs such as rack=example.com/rack: {text[:60]!r} does not"
        )
    return tuple((name, label) for name, _, label in pairs)
