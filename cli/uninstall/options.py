"""The command line of `fluxqueue uninstall`, which is also that of `kubectl fluxqueue uninstall`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fluxqueue.api.durations import InvalidDuration, parse_duration

__all__ = ["DESCRIPTION", "UninstallOptions", "add_uninstall_options", "read_uninstall_options"]

DESCRIPTION = (
    "Remove fluxqueue from the cluster, in this order: webhook configurations, admission policies, "
    "programs; then held work is released to plain Kubernetes, or kept; then FluxJobs, Leases, certificates "
    "and everything else. Running work goes on. The command can be repeated after any interruption, "
    "and after 'helm uninstall'."
)
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class UninstallOptions:
    """What the user asked for.

    Attributes
    ----------
    release_held
        True if held work is released; false if it is kept.
    delete_data, delete_crds
        Whether the database's volume and password, and the CRDs, go too.
    dry_run, yes
        Whether to print only, and whether not to ask.
    wait_s
        For how long to stay and ungate the later pods of running Jobs.
    timeout_s
        How long programs may take to end, and held work to be released after the last progress.
    namespace, release
        Of the installation; empty to find it.
    kubeconfig, context
        As those of kubectl.
    """

    release_held: bool
    delete_data: bool = False
    delete_crds: bool = False
    dry_run: bool = False
    yes: bool = False
    wait_s: float = 0.0
    timeout_s: float = _TIMEOUT_S
    namespace: str = ""
    release: str = ""
    kubeconfig: str | None = None
    context: str | None = None


def add_uninstall_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    held = parser.add_mutually_exclusive_group(required=True)
    held.add_argument(
        "--release-held",
        action="store_true",
        help="release held work to plain Kubernetes: it starts wherever it fits",
    )
    held.add_argument(
        "--keep-held",
        action="store_true",
        help="keep held work suspended and gated, for a later installation; it is listed",
    )
    parser.add_argument(
        "--delete-data",
        action="store_true",
        help="delete the volume claim of the chart's Postgres and its password, not dumps",
    )
    parser.add_argument(
        "--delete-crds",
        action="store_true",
        help="delete the CRDs, and so all FluxQueues and FluxAccounts; not while MiniClusters exist",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would happen, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--wait",
        type=_duration,
        default=0,
        metavar="TIME",
        help="stay for at most this long and ungate later pods of running Jobs (2h)",
    )
    parser.add_argument(
        "--timeout",
        type=_duration,
        default=_TIMEOUT_S,
        metavar="TIME",
        help=(
            "how long programs may take to end, and held work to be released after the last progress "
            "(default: 120s)"
        ),
    )
    parser.add_argument(
        "--system-namespace",
        default="",
        metavar="NAME",
        help="namespace of fluxqueue; by default found by label",
    )
    parser.add_argument(
        "--release", default="", metavar="NAME", help="name of the Helm release; by default found by label"
    )


def read_uninstall_options(arguments: argparse.Namespace) -> UninstallOptions:
    """Return the options of a parsed command line."""
    return UninstallOptions(
        release_held=arguments.release_held,
        delete_data=arguments.delete_data,
        delete_crds=arguments.delete_crds,
        dry_run=arguments.dry_run,
        yes=arguments.yes,
        wait_s=float(arguments.wait),
        timeout_s=float(arguments.timeout),
        namespace=arguments.system_namespace,
        release=arguments.release,
        kubeconfig=getattr(arguments, "kubeconfig", None),
        context=getattr(arguments, "context", None),
    )


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None
