"""`kubectl fluxqueue doctor`, `uninstall` and `version`: their options, and what they run."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.sessions import connection_of
from fluxqueue.cli.usage_errors import UsageParser

if TYPE_CHECKING:
    from fluxqueue.cli.queue_endpoint import QueueAddress

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    if verb == "uninstall":
        from fluxqueue.cli.uninstall import options

        command.description = options.DESCRIPTION
        command.example = "kubectl fluxqueue uninstall --release-held"
        options.add_uninstall_options(command)
    elif verb == "doctor":
        command.description = (
            "Compare the cluster, the queue's tables and its graph. Print each difference; "
            "exit code 1 if there is any."
        )
        command.add_argument(
            "--repair", action="store_true", help="repair what can be repaired, then compare again"
        )
        command.add_argument(
            "--bundle",
            default="",
            metavar="FILE",
            help="write FILE (.tgz) for who looks for the fault: versions, settings, logs; no secrets",
        )
        command.add_argument("--json", action="store_true", help="as JSON")
        command.add_argument(
            "--system-namespace",
            default="",
            metavar="NAME",
            help="namespace of fluxqueue; by default found by label",
        )
        command.add_argument(
            "--queue-ca", default="", metavar="FILE", help="authority of the certificate at that address"
        )
        command.add_argument(
            "--queue-url",
            default="",
            metavar="URL",
            help="ask this address instead of going through the API server",
        )


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    match arguments.command:
        case "doctor":
            return _doctor(arguments)
        case "uninstall":
            from fluxqueue.cli.uninstall.command import run as uninstall

            return uninstall(arguments)
        case _:
            return _version(arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import doctor
    from fluxqueue.cli.queue_endpoint import CA_VARIABLE, TIMEOUT_S, URL_VARIABLE, QueueAddress, find_queue

    address = QueueAddress(
        url=arguments.queue_url or os.environ.get(URL_VARIABLE, ""),
        ca=arguments.queue_ca or os.environ.get(CA_VARIABLE, ""),
        namespace=arguments.system_namespace,
    )
    if arguments.bundle:
        return _bundle(arguments, address)
    with find_queue(address, lambda: ApiClient(connection_of(arguments), TIMEOUT_S)) as queue:
        return doctor.doctor(queue, sys.stdout, repair=arguments.repair, as_json=arguments.json)


def _bundle(arguments: argparse.Namespace, address: QueueAddress) -> int:
    from pathlib import Path

    from fluxqueue.cli import bundle
    from fluxqueue.cli.queue_endpoint import NAMESPACE, TIMEOUT_S, find_queue

    with ApiClient(connection_of(arguments), TIMEOUT_S) as server:
        try:
            with find_queue(address, lambda: ApiClient(connection_of(arguments), TIMEOUT_S)) as queue:
                made = bundle.collect(server, queue, queue.namespace)
        except ClusterError as error:
            made = bundle.collect(server, error, address.namespace or NAMESPACE)
    bundle.write(made, Path(arguments.bundle))
    print(f"{arguments.bundle}: {len(made.parts)} parts. Look through it before you send it to anybody.")
    for name, why in sorted(made.missing.items()):
        print(f"missing: {name} ({why.removeprefix('error: ')})", file=sys.stderr)
    return 0


def _version(arguments: argparse.Namespace) -> int:
    from json import loads

    from fluxqueue.api.release import version
    from fluxqueue.cli import doctor
    from fluxqueue.cli.queue_endpoint import CA_VARIABLE, URL_VARIABLE, QueueAddress, find_queue

    print(f"Client Version: v{version()}")
    with ApiClient(connection_of(arguments)) as client:
        print(f"Server Version: {loads(client.get('/version')).get('gitVersion', 'unknown')}")
    try:
        address = QueueAddress(url=os.environ.get(URL_VARIABLE, ""), ca=os.environ.get(CA_VARIABLE, ""))
        with find_queue(address, lambda: ApiClient(connection_of(arguments))) as queue:
            doctor.show_replicas(queue, sys.stdout)
    except ClusterError as error:
        print(f"Queue: cannot be reached ({str(error).removeprefix('error: ')})")
    return 0
