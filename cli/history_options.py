"""Options of `kubectl fluxqueue history` and `report`, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.names import HISTORY_ACCOUNT
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.exports import FORMATS, Export
from fluxqueue.cli.history_source import SERVICE, HistoryAddress
from fluxqueue.cli.past_times import read_since, read_until
from fluxqueue.cli.queue_endpoint import CA_VARIABLE, NAMESPACE, URL_VARIABLE
from fluxqueue.cli.usage_errors import UsageParser

if TYPE_CHECKING:
    from fluxqueue.cli.history import HistoryRequest
    from fluxqueue.cli.report import ReportRequest

__all__ = [
    "DESCRIPTIONS",
    "EXAMPLES",
    "MOST_SUMMED",
    "add_address_options",
    "add_history_options",
    "add_report_options",
    "add_stats_options",
    "address",
    "history_request",
    "named",
    "report_request",
    "stats_parameters",
]

DESCRIPTIONS: Final = {
    "history": (
        "Work of a namespace that has ended, runs or waits: the last day, the newest end first; "
        "all runs of a NAME."
    ),
    "stats": "Throughput, waits and use of nodes of the work of a namespace: the last day, in steps of time.",
    "report": "What the work of a namespace used: the last 30 days, in hours of cores, GiB and GPUs.",
}
EXAMPLES: Final = {
    "history": "kubectl fluxqueue history --since 7d --state failed",
    "stats": "kubectl fluxqueue stats -A --since 7d --step 1d",
    "report": "kubectl fluxqueue report -A --by account,user --since 2026-11-01",
}
_KINDS: Final = {
    "po": "pod",
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "mc": "job",
    "minicluster": "job",
}
"""kubectl's short names; the record of a MiniCluster is that of its Job, which has the same name."""
_FILTERS: Final = ("account", "queue", "user")
_TIMES: Final = ("since", "until")
_MOST: Final = 10_000_000
MOST_SUMMED: Final = 200_000
"""Workloads that `stats` sums."""


def add_history_options(command: UsageParser) -> None:
    """Add the options of `history`."""
    command.add_argument(
        "name",
        nargs="?",
        type=named,
        metavar="NAME",
        help="only the work of this name, all of it: lammps, job/lammps",
    )
    _add_common(command)
    command.add_argument(
        "--state",
        default="",
        metavar="STATE[,STATE]",
        help="only these, such as completed, failed, cancelled, running",
    )
    command.add_argument(
        "--limit", default=1_000, type=_limit, metavar="N", help="at most so many (default: %(default)s)"
    )


def add_report_options(command: UsageParser) -> None:
    """Add the options of `report`."""
    _add_common(command)
    command.add_argument(
        "--by",
        default="",
        metavar="GROUP[,GROUP]",
        help="some of namespace, account, queue, user, day (default: namespace)",
    )


def add_stats_options(command: UsageParser) -> None:
    """Add the options of `stats`."""
    _add_filters(command)
    command.add_argument(
        "--step", default=None, type=_step, metavar="TIME", help="length of a step, such as 15m, 1h, 1d"
    )
    command.add_argument("-o", "--output", default="", choices=["json"], help="form of the output")
    command.add_argument("--ascii", action="store_true", help="draw with characters of ASCII")


def _add_common(command: UsageParser) -> None:
    _add_filters(command)
    command.add_argument(
        "-o", "--output", default="table", choices=["table", *FORMATS], help="form of the output"
    )
    command.add_argument("--file", default="", metavar="FILE", help="write CSV, JSON or Parquet to this file")


def _add_filters(command: UsageParser) -> None:
    command.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    command.add_argument("-q", "--queue", default=None, metavar="QUEUE", help="only this queue")
    command.add_argument(
        "--account", default=None, metavar="NAME", help="only this FluxAccount; '' for work without one"
    )
    command.add_argument("--user", default=None, metavar="NAME", help="only what this person submitted")
    command.add_argument(
        "--since",
        default=None,
        type=read_since,
        metavar="TIME",
        help=(
            "2026-11-23, 2026-11-23T08:00 (both in your time zone), 2026-11-23T08:00:00Z, "
            "or how long ago: 12h, 7d"
        ),
    )
    command.add_argument(
        "--until", default=None, type=read_until, metavar="TIME", help="until then; now if not given"
    )
    command.add_argument("--no-headers", action="store_true", help="no line of titles")
    add_address_options(command)


def add_address_options(command: UsageParser) -> None:
    """Add the options that say where the history is."""
    command.add_argument(
        "--system-namespace",
        default=NAMESPACE,
        metavar="NAME",
        help="namespace of fluxqueue (default: %(default)s)",
    )
    command.add_argument(
        "--queue-service",
        default=SERVICE,
        metavar="NAME",
        help="the queue's Service there (default: %(default)s)",
    )
    command.add_argument(
        "--service-account",
        default=HISTORY_ACCOUNT,
        metavar="NAME",
        help="account that opens the history (default: %(default)s)",
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


def address(arguments: argparse.Namespace, namespace: str, environ: Mapping[str, str]) -> HistoryAddress:
    """Return where the history of a namespace is; empty: of all."""
    return HistoryAddress(
        namespace=namespace,
        url=arguments.queue_url or environ.get(URL_VARIABLE, ""),
        ca=arguments.queue_ca or environ.get(CA_VARIABLE, ""),
        system_namespace=arguments.system_namespace,
        service=arguments.queue_service,
        account=arguments.service_account,
    )


def history_request(arguments: argparse.Namespace, namespace: str) -> HistoryRequest:
    """Return what `history` asks for."""
    from fluxqueue.cli.history import HistoryRequest

    state = {"state": arguments.state} if arguments.state else {}
    return HistoryRequest(
        parameters=_parameters(arguments, namespace) | state | (arguments.name or {}),
        limit=arguments.limit,
        namespaces=not namespace,
        titles=not arguments.no_headers,
        export=_export(arguments),
    )


def named(text: str) -> dict[str, str]:
    """Return the parameters of ``/history`` for a name as people type it:
    lammps, job/lammps, jobs.batch/lammps, pod-group/mesh.
    """
    kind, slash, name = text.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no name of work: write lammps, or job/lammps")
    kind = kind.lower().split(".")[0].replace("-", "").removesuffix("s")
    return {"name": name, **({"kind": _KINDS.get(kind, kind)} if kind else {})}


def report_request(arguments: argparse.Namespace, namespace: str) -> ReportRequest:
    """Return what `report` asks for."""
    from fluxqueue.cli.report import ReportRequest

    by = {"by": arguments.by} if arguments.by else {}
    return ReportRequest(
        parameters=_parameters(arguments, namespace) | by,
        titles=not arguments.no_headers,
        export=_export(arguments),
    )


def stats_parameters(arguments: argparse.Namespace, namespace: str) -> dict[str, str]:
    """Return what `stats` asks for."""
    return _parameters(arguments, namespace)


def _parameters(arguments: argparse.Namespace, namespace: str) -> dict[str, str]:
    given = {name: value for name in _FILTERS if (value := getattr(arguments, name)) is not None}
    times = {name: time.isoformat() for name in _TIMES if (time := getattr(arguments, name)) is not None}
    return given | times | ({"namespace": namespace} if namespace else {})


def _export(arguments: argparse.Namespace) -> Export | None:
    if arguments.output == "table":
        if arguments.file:
            raise ClusterError(f"error: --file is for {', '.join(FORMATS)}: choose one with -o")
        return None
    return Export(arguments.output, arguments.file, titles=not arguments.no_headers)


def _step(text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST and len(text) < 9):
        raise argparse.ArgumentTypeError(
            f"--limit is a whole number from 1 to {_MOST}: {text[:60]!r} is none"
        )
    return int(text)
