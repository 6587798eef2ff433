"""`kubectl fluxqueue history` and `report`: their options, and what they run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fluxqueue.cli import history_options as options
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.history_source import HistorySource, find_history
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of one of the commands."""
    command.description = options.DESCRIPTIONS[verb]
    command.example = options.EXAMPLES[verb]
    (options.add_history_options if verb == "history" else options.add_report_options)(command)


def run(arguments: argparse.Namespace) -> int:
    """Print history or use."""
    with _source(arguments) as (source, namespace):
        if arguments.command == "history":
            from fluxqueue.cli import history

            return history.history(source, options.history_request(arguments, namespace), sys.stdout, now)
        from fluxqueue.cli import report

        return report.report(source, options.report_request(arguments, namespace), sys.stdout)


@contextmanager
def _source(arguments: argparse.Namespace) -> Iterator[tuple[HistorySource, str]]:
    chosen = connection_of(arguments)
    namespace = "" if arguments.all_namespaces else namespace_of(arguments, chosen)
    with find_history(options.address(arguments, namespace, os.environ), lambda timeout_s: ApiClient(chosen, timeout_s)) as source:
        yield source, namespace
