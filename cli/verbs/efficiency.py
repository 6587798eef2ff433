"""`kubectl fluxqueue efficiency`: its options, and what it runs."""

from __future__ import annotations

import argparse
import os
import sys

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import history_options as options
from fluxqueue.cli.api_client import ApiClient, ClusterError, ObjectNotFound
from fluxqueue.cli.efficiency import efficiency, of_history, of_row
from fluxqueue.cli.lookup import fluxjobs_of, observed
from fluxqueue.cli.pod_metrics import PodUse, read_use
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = "What a workload asked for, and what it uses of that: its time, cores and memory."
    command.example = f"kubectl fluxqueue {verb} lammps"
    command.add_argument(
        "name",
        metavar="NAME",
        help="a FluxJob, or your object: lammps, job/lammps, pod/probe, deployment/web",
    )
    options.add_address_options(command)


def run(arguments: argparse.Namespace) -> int:
    """Show what workloads use."""
    chosen = connection_of(arguments)
    namespace = namespace_of(arguments, chosen)
    with ApiClient(chosen) as client:
        try:
            jobs = fluxjobs_of(client, namespace, arguments.name)
        except ObjectNotFound:
            if (text := _remembered(arguments, namespace)) is None:
                raise
            sys.stdout.write(text)
            return 0
        sys.stdout.write("\n".join(efficiency(job, _use(client, job), now()) for job in jobs))
    return 0


def _use(client: ApiClient, job: FluxJob) -> PodUse | None:
    running = [pod for pod in observed(client, job).pods if pod.status.phase == "Running"]
    return read_use(client, job.metadata.namespace, running) if running else None


def _remembered(arguments: argparse.Namespace, namespace: str) -> str | None:
    """Return what the history has of a name; None if it has nothing, or cannot be read."""
    from fluxqueue.cli.history_source import find_history

    chosen = connection_of(arguments)
    try:
        with find_history(
            options.address(arguments, namespace, os.environ), lambda timeout_s: ApiClient(chosen, timeout_s)
        ) as source:
            row = of_history(source, namespace, arguments.name)
    except ClusterError:
        return None
    return None if row is None else of_row(row, now())
