"""`kubectl fluxqueue history`, `report` and `stats`: their options, and what they run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.cli import history_options as options
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.history_source import HistorySource, find_history
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.slurm_options import OF_SACCT
from fluxqueue.cli.tables import age
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.description = options.DESCRIPTIONS[verb]
    command.example = options.EXAMPLES[verb]
    command.of_others = OF_SACCT
    add = {
        "history": options.add_history_options,
        "report": options.add_report_options,
        "stats": options.add_stats_options,
    }
    add[verb](command)


def run(arguments: argparse.Namespace) -> int:
    """Print history or use."""
    with _source(arguments) as (source, namespace):
        if arguments.command == "history":
            from fluxqueue.cli import history

            return history.history(source, options.history_request(arguments, namespace), sys.stdout, now)
        if arguments.command == "stats":
            return _stats(source, arguments, namespace)
        from fluxqueue.cli import report

        def accounts() -> list[FluxAccount]:
            with ApiClient(connection_of(arguments)) as client:
                return report.visible_accounts(client, sys.stderr)

        return report.report(source, options.report_request(arguments, namespace), sys.stdout, accounts)


def _stats(source: HistorySource, arguments: argparse.Namespace, namespace: str) -> int:
    from fluxqueue.cli import throughput
    from fluxqueue.cli.tables import instant

    parameters = options.stats_parameters(arguments, namespace)
    rows: list[dict[str, Any]] = []
    answer: dict[str, Any] = {}
    for page, _ in source.jobs(parameters, options.MOST_SUMMED, 1_000, answer):
        rows += page
    time = now()
    since = (instant(answer.get("since")) or time).astimezone(time.tzinfo)
    until = min((instant(answer.get("until")) or time).astimezone(time.tzinfo), time)
    step = timedelta(seconds=arguments.step) if arguments.step else throughput.default_step(until - since)
    if arguments.output != "json" and not arguments.no_headers:
        print(
            f"From {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}, in steps of {age(step.total_seconds())}"
        )
    plain = arguments.ascii or "utf" not in (sys.stdout.encoding or "").lower()
    view = throughput.StatsView(step, _cores(arguments), titles=not arguments.no_headers, ascii_only=plain)
    throughput.write_steps(throughput.steps_of(rows, since, until, step), view, arguments.output, sys.stdout)
    if len(rows) >= options.MOST_SUMMED:
        print(
            f"Only {options.MOST_SUMMED} workloads are summed: name a shorter time with --since and --until.",
            file=sys.stderr,
        )
    return 0


def _cores(arguments: argparse.Namespace) -> float | None:
    """Return how many cores the nodes have; None if the person may not see them, or filters the work."""
    if not arguments.all_namespaces or any(
        getattr(arguments, name) is not None for name in ("queue", "account", "user")
    ):
        return None
    from fluxqueue.cli.node_use import count_cores

    with ApiClient(connection_of(arguments)) as client:
        return count_cores(client)


@contextmanager
def _source(arguments: argparse.Namespace) -> Iterator[tuple[HistorySource, str]]:
    chosen = connection_of(arguments)
    namespace = "" if arguments.all_namespaces else namespace_of(arguments, chosen)
    with find_history(
        options.address(arguments, namespace, os.environ), lambda timeout_s: ApiClient(chosen, timeout_s)
    ) as source:
        yield source, namespace
