"""`kubectl fluxqueue queue create|hold|resume|drain`: its options, and what it runs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fluxqueue.api.fluxqueues import Policy
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.queue_edits import STATES, create_queue, queue_manifest, set_state
from fluxqueue.cli.sessions import connection_of
from fluxqueue.cli.time_limits import FORMS, time_limit_seconds
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_ACTIONS = ("create", *STATES)
_SPEC = ("policy", "priority", "max_priority", "default_duration", "max_duration", "preemption")


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Create a queue, or change the state of queues: hold (accept work, start none), drain (accept no "
        "new work), resume (open again)."
    )
    command.example = f"kubectl fluxqueue {verb} create night --policy conservative --max-duration 12h"
    command.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    command.add_argument("name", nargs="+", metavar="QUEUE", help="the queues")
    only = command.add_argument_group("create")
    only.add_argument(
        "--policy",
        default=None,
        choices=[str(each) for each in Policy],
        help="which work starts before other work",
    )
    only.add_argument(
        "--priority", default=None, type=int, metavar="N", help="added to the priority of its work"
    )
    only.add_argument(
        "--max-priority", default=None, type=int, metavar="N", help="the highest priority of its work"
    )
    only.add_argument(
        "--default-duration",
        default=None,
        type=time_limit_seconds,
        metavar="TIME",
        help="assumed where work has none",
    )
    only.add_argument(
        "--max-duration", default=None, type=time_limit_seconds, metavar="TIME", help=f"of its work: {FORMS}"
    )
    only.add_argument(
        "--preemption",
        default=None,
        choices=["never", "lowerPriority"],
        help="whether its work preempts, and is preempted",
    )
    only.add_argument(
        "--node-selector",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="labels of its nodes",
    )
    only.add_argument(
        "--of-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="a namespace that may use it; all if not given",
    )
    only.add_argument(
        "--dry-run", default="none", choices=["none", "client", "server"], help="create nothing"
    )
    only.add_argument(
        "-o", "--output", default="", choices=["yaml", "json"], help="with --dry-run: print the FluxQueue"
    )


def run(arguments: argparse.Namespace) -> int:
    """Create queues, or change their state."""
    spec = _spec(arguments)
    if arguments.action != "create":
        if spec or arguments.dry_run != "none":
            raise ClusterError(
                f"error: queue {arguments.action} takes names only; "
                "kubectl edit fluxqueue changes the other fields"
            )
        with ApiClient(connection_of(arguments)) as client:
            return set_state(client, arguments.name, STATES[arguments.action], sys.stdout)
    manifests = [queue_manifest(name, spec) for name in arguments.name]
    if arguments.dry_run == "client":
        _show(manifests, arguments.output)
        return 0
    with ApiClient(connection_of(arguments)) as client:
        for manifest in manifests:
            create_queue(client, manifest, sys.stdout, dry_run=arguments.dry_run == "server")
    return 0


def _spec(arguments: argparse.Namespace) -> dict[str, Any]:
    names = {
        "max_priority": "maxPriority",
        "default_duration": "defaultDurationSeconds",
        "max_duration": "maxDurationSeconds",
    }
    spec: dict[str, Any] = {
        names.get(each, each): value for each in _SPEC if (value := getattr(arguments, each)) is not None
    }
    if arguments.node_selector:
        spec["nodeSelector"] = dict(arguments.node_selector)
    if arguments.of_namespace:
        spec["namespaces"] = {"names": arguments.of_namespace}
    return spec


def _show(manifests: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        import json

        for manifest in manifests:
            print(json.dumps(manifest, indent=4))
    elif output == "yaml":
        import yaml

        print(yaml.safe_dump_all(manifests, sort_keys=False), end="")
    else:
        for manifest in manifests:
            print(f"fluxqueue/{manifest['metadata']['name']} created (dry run)")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(
            f"--node-selector is a label such as disk=ssd: {text[:60]!r} is none"
        )
    return key, value
