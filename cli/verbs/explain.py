"""`kubectl fluxqueue explain`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.explain import explain
from fluxqueue.cli.guarantees import guarantees_of
from fluxqueue.cli.listing import collection, rendered
from fluxqueue.cli.lookup import find, fluxjobs_of
from fluxqueue.cli.matchers import matcher_notes_of
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.tables import wants_colour
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "The request of a workload, its state, why it waits, what helps, and the node of each pod."
    )
    command.example = f"kubectl fluxqueue {verb} lammps"
    command.add_argument(
        "name",
        metavar="NAME",
        help="a FluxJob, or your object: lammps, job/lammps, pod/probe, deployment/web",
    )
    command.add_argument(
        "-o",
        "--output",
        default="",
        choices=["wide", "json", "yaml"],
        help="wide: every pod of a big workload; the others: its FluxJob",
    )


def run(arguments: argparse.Namespace) -> int:
    """Explain the workloads of a name."""
    chosen = connection_of(arguments)
    with ApiClient(chosen) as client:
        namespace = namespace_of(arguments, chosen)
        if arguments.output in ("json", "yaml"):
            metas = [job.metadata for job in fluxjobs_of(client, namespace, arguments.name)]
            raw = [client.get(f"{collection(names.FLUXJOBS, meta.namespace)}/{meta.name}") for meta in metas]
            sys.stdout.write(rendered(raw, arguments.output, names.FLUXJOBS, alone=len(raw) == 1))
            return 0
        workloads = find(client, namespace, arguments.name)
        matcher = matcher_notes_of(client)
        guaranteed = guarantees_of(client, [seen.job for seen in workloads])
    time, wide, colour = now(), arguments.output == "wide", wants_colour(sys.stdout)
    texts = [
        explain(
            seen,
            time,
            every_pod=wide,
            colour=colour,
            guaranteed=guaranteed(seen.job),
            matcher=matcher(seen.job),
        )
        for seen in workloads
    ]
    sys.stdout.write("\n".join(texts))
    return 0
