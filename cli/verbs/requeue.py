"""`kubectl fluxqueue requeue`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.confirmation import confirmed
from fluxqueue.cli.job_listing import selected_jobs
from fluxqueue.cli.job_selection import WorkloadSelection, add_selection_options
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.requeue import RequeueOptions, objection, requeue
from fluxqueue.cli.sessions import connection_of, namespace_of
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_EXAMPLE = "kubectl fluxqueue requeue lammps"


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    del verb
    command.description = (
        "Stop Jobs that run, and have them wait again, with their first submit time. "
        "What they computed since is lost."
    )
    command.example = _EXAMPLE
    command.add_argument("name", nargs="*", metavar="NAME", help="FluxJobs, or your Jobs: lammps, job/lammps")
    add_selection_options(command)
    command.add_argument("--all", action="store_true", help="all Jobs of the namespace that run")
    command.add_argument("--hold", action="store_true", help="and hold them")
    command.add_argument(
        "--timeout",
        default=600,
        type=_seconds,
        metavar="TIME",
        help="how long they may take to stop (default: 10m)",
    )
    command.add_argument("-y", "--yes", action="store_true", help="do not ask, if a selection hits several")


def run(arguments: argparse.Namespace) -> int:
    """Requeue what is named, or what is selected."""
    selects = bool(arguments.selector or arguments.of_queue or arguments.state or arguments.all)
    if bool(arguments.name) == selects:
        say = (
            "takes names or a selection, not both"
            if selects
            else "needs NAME, or a selection (-l, --queue, --state, --all)"
        )
        raise ClusterError(
            f"error: requeue {say}, such as {_EXAMPLE} (see 'kubectl fluxqueue requeue --help')"
        )
    chosen = connection_of(arguments)
    namespace = namespace_of(arguments, chosen)
    options = RequeueOptions(hold=arguments.hold, timeout_s=arguments.timeout)
    with ApiClient(chosen) as client:
        if not selects:
            jobs = [job for name in arguments.name for job in fluxjobs_of(client, namespace, name)]
            if errors := [f"error: {object_name(job)} {why}" for job in jobs if (why := objection(job))]:
                raise ClusterError("\n".join(errors))
            return requeue(client, jobs, options, sys.stdout)
        selection = WorkloadSelection(
            namespace=namespace,
            selector=arguments.selector,
            queue=arguments.of_queue,
            states=arguments.state or frozenset(),
        )
        jobs = [item.job for item in selected_jobs(client, selection)[0] if _runs(item.job)]
        if not jobs:
            print("Nothing that is selected can be requeued.")
            return 0
        if not confirmed("stop and requeue", [object_name(job) for job in jobs], yes=arguments.yes):
            print("Nothing was changed.")
            return 1
        return requeue(client, jobs, options, sys.stdout)


def _runs(job: FluxJob) -> bool:
    return state_of(job) != "Pending" and not objection(job)


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None
