"""`kubectl fluxqueue hold`, `release`, `cancel`, `prioritize` and `move`:
their options, and what they run.
"""

from __future__ import annotations

import argparse
import sys

from fluxqueue.cli import fluxjob_edits
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.confirmation import confirmed
from fluxqueue.cli.job_listing import selected_jobs
from fluxqueue.cli.job_selection import WorkloadSelection, add_selection_options
from fluxqueue.cli.sessions import connection_of, namespace_of
from fluxqueue.cli.slurm_options import OF_SCANCEL
from fluxqueue.cli.usage_errors import UsageParser, whole_number

__all__ = ["add_options", "run"]

_EXAMPLES = {"prioritize": " 10", "move": " -q night"}


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.example = f"kubectl fluxqueue {verb} lammps{_EXAMPLES.get(verb, '')}"
    command.of_others = OF_SCANCEL if verb == "cancel" else {}
    command.add_argument(
        "name", nargs="*", metavar="NAME", help="FluxJobs, or your objects: lammps, job/lammps"
    )
    if verb == "prioritize":
        number = whole_number("the priority", command.example)
        command.add_argument(
            "priority", type=number, metavar="N", help="higher starts earlier, within the queue's limit"
        )
    if verb == "move":
        command.add_argument("-q", "--queue", required=True, metavar="QUEUE", help="the other queue")
    add_selection_options(command, queue_flags=("--from",) if verb == "move" else ("-q", "--queue"))
    command.add_argument("--all", action="store_true", help="all workloads of the namespace")
    command.add_argument(
        "-A", "--all-namespaces", action="store_true", help="of all namespaces, where a selection is given"
    )
    command.add_argument("-y", "--yes", action="store_true", help="do not ask, if a selection hits several")


def run(arguments: argparse.Namespace) -> int:
    """Edit what is named, or what is selected."""
    verb = arguments.command
    selects = bool(arguments.selector or arguments.of_queue or arguments.state or arguments.all)
    if bool(arguments.name) == selects:
        say = (
            "takes names or a selection, not both"
            if selects
            else "needs NAME, or a selection (-l, --queue, --state, --all)"
        )
        raise ClusterError(
            f"error: {verb} {say}, such as {_example(verb)} (see 'kubectl fluxqueue {verb} --help')"
        )
    if arguments.all_namespaces and not selects:
        raise ClusterError(
            "error: -A is for a selection (-l, --queue, --state, --all): "
            f"a name is in one namespace (-n) for {verb}"
        )
    chosen = connection_of(arguments)
    namespace = namespace_of(arguments, chosen)
    with ApiClient(chosen) as client:
        change = _change(client, arguments)
        if not selects:
            return fluxjob_edits.edit_fluxjobs(client, namespace, arguments.name, change, sys.stdout)
        selection = WorkloadSelection(
            namespace=None if arguments.all_namespaces else namespace,
            selector=arguments.selector,
            queue=arguments.of_queue,
            states=arguments.state or frozenset(),
        )
        jobs = [item.job for item in selected_jobs(client, selection)[0]]
        return fluxjob_edits.edit_selected(
            client, jobs, change, sys.stdout, lambda what: confirmed(verb, what, yes=arguments.yes)
        )


def _example(verb: str) -> str:
    return f"kubectl fluxqueue {verb} lammps{_EXAMPLES.get(verb, '')}"


def _change(client: ApiClient, arguments: argparse.Namespace) -> fluxjob_edits.FluxJobEdit:
    match arguments.command:
        case "hold":
            return fluxjob_edits.held()
        case "release":
            return fluxjob_edits.released()
        case "cancel":
            return fluxjob_edits.cancelled()
        case "prioritize":
            return fluxjob_edits.prioritized(arguments.priority)
        case _:
            return fluxjob_edits.moved(client, arguments.queue)
