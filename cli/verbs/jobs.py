"""`kubectl fluxqueue jobs`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.custom_columns import PREFIX, CustomColumn, read_custom_columns
from fluxqueue.cli.job_fields import read_sort, read_template
from fluxqueue.cli.job_listing import JobsQuery, jobs
from fluxqueue.cli.job_selection import Stated, WorkloadSelection, add_selection_options
from fluxqueue.cli.past_times import read_since, require_past
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.slurm_options import OF_SQUEUE
from fluxqueue.cli.submitted_by import SELF
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_FORMS = ("wide", "json", "yaml", "name")


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = "The queue as a table: what runs, what waits in the order of the queue, what ended."
    command.example = f"kubectl fluxqueue {verb} --state pending --sort -wait"
    command.of_others = OF_SQUEUE
    command.add_argument(
        "name", nargs="*", metavar="NAME", help="only these FluxJobs or objects (lammps, job/lammps)"
    )
    command.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    add_selection_options(command)
    whose = command.add_mutually_exclusive_group()
    whose.add_argument(
        "-u",
        "--user",
        action=Stated,
        default="",
        metavar="USER",
        help="only what this user submitted, as the API server knows the name",
    )
    whose.add_argument("--me", dest="user", action="store_const", const=SELF, help="only what you submitted")
    command.add_argument(
        "--since",
        default=None,
        metavar="TIME",
        type=read_since,
        help="without what ended before: 12h, 2026-11-23T08:00:00Z",
    )
    command.add_argument(
        "--sort",
        action=Stated,
        default=(),
        metavar="FIELD[,FIELD]",
        type=read_sort,
        help="by these, such as wait or -priority",
    )
    command.add_argument(
        "-o",
        "--output",
        default="",
        type=_output,
        metavar="FORM",
        help=f"{', '.join(_FORMS)} or {PREFIX}TITLE:PATH,...",
    )
    command.add_argument(
        "--format",
        default=None,
        metavar="TEMPLATE",
        type=read_template,
        help="lines such as '{object:<20} {state} {info}'",
    )
    command.add_argument("--no-headers", action="store_true", help="no line of titles")
    command.add_argument("-w", "--watch", action="store_true", help="then print a line for each change")


def _output(text: str) -> str | tuple[CustomColumn, ...]:
    if text.startswith(PREFIX):
        return read_custom_columns(text.removeprefix(PREFIX))
    if text and text not in _FORMS:
        raise argparse.ArgumentTypeError(
            f"-o/--output takes {', '.join(_FORMS)} or {PREFIX}TITLE:PATH, not {text!r}"
        )
    return text


def run(arguments: argparse.Namespace) -> int:
    """Print the queue."""
    require_past(arguments.since)
    chosen = connection_of(arguments)
    output = arguments.output
    query = JobsQuery(
        selection=WorkloadSelection(
            namespace=None if arguments.all_namespaces else namespace_of(arguments, chosen),
            names=tuple(arguments.name),
            selector=arguments.selector,
            queue=arguments.of_queue,
            states=arguments.state or frozenset(),
            since=arguments.since,
            user=arguments.user,
        ),
        output=output if isinstance(output, str) else "",
        columns=() if isinstance(output, str) else output,
        template=arguments.format,
        sort=arguments.sort,
        titles=not arguments.no_headers,
        watch=arguments.watch,
    )
    with ApiClient(chosen) as client:
        return jobs(client, query, sys.stdout, now)
