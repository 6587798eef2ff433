"""The output of the demo: a live table on a terminal, a line for each change elsewhere (a log of CI)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fluxqueue.api.formatting import format_nodes
from fluxqueue.local.verdicts import Row, describe_state, differences, notes_on, parse_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Screen"]

_PLAIN_WIDTH = 140


class Screen:
    """The output of the demo."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console: Console = (
            Console(highlight=False) if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH, highlight=False)
        )
        self.live = self.console.is_terminal
        self._printed: dict[str, str] = {}

    def step(self, text: str) -> None:
        """Print the title of a step."""
        self.console.print(f"\n[bold]{text}[/bold]" if self.live else f"\n== {text}")

    def command(self, words: Sequence[str], output: str) -> None:
        """Print a kubectl command and its output."""
        self.console.print(
            f"\n[dim]$ kubectl {' '.join(words)}[/dim]" if self.live else f"\n$ kubectl {' '.join(words)}"
        )
        self.console.out(output.rstrip("\n"), highlight=False)

    def changes(self, rows: Sequence[Row]) -> None:
        """Print a line for each workload whose state changed."""
        for row in rows:
            key = row.fluxjob.metadata.name if row.fluxjob else row.title
            text = describe_state(row) + (f" on {nodes}" if (nodes := _chosen(row)) else "")
            if row.fluxjob and self._printed.get(key) != text:
                self._printed[key] = text
                self.console.out(
                    f"{datetime.now().astimezone():%H:%M:%S}  {row.title:<24}{text}", highlight=False
                )

    def table(self, rows: Sequence[Row]) -> Table:
        """Return the table of the present state."""
        table = _table("OBJECT", "STATE", "WHY", "NODES CHOSEN", "PODS RUN ON", "WAIT")
        for row in rows:
            status = row.fluxjob.status if row.fluxjob else None
            why = status.reason if status else ""
            table.add_row(
                row.title,
                _coloured(row.state or "..."),
                why,
                _chosen(row),
                format_nodes(row.ran_on),
                _wait_of(row),
            )
        return table

    def summary(self, rows: Sequence[Row]) -> None:
        """Print how each workload ended, and whether that is as expected."""
        table = _table("OBJECT", "FLUXJOB STATE", "NODES FLUXION CHOSE", "NODES THE PODS RAN ON", "WAIT", "")
        for row in rows:
            state = row.fluxjob.status.reason if row.fluxjob and row.example.expects else row.state
            verdict = "[green]as expected[/green]" if not differences(row) else "[red]wrong[/red]"
            table.add_row(
                row.title, _coloured(state), _chosen(row), format_nodes(row.ran_on), _wait_of(row), verdict
            )
        self.console.print(table)
        for sentence in notes_on(rows):
            self.console.out(sentence, highlight=False)


def _chosen(row: Row) -> str:
    return format_nodes(row.fluxjob.status.nodes) if row.fluxjob else ""


_COLOURS = {
    "Pending": "yellow",
    "Allocated": "cyan",
    "Running": "green",
    "Completed": "green",
    "Failed": "red",
    "Unsatisfiable": "magenta",
}


def _coloured(state: str) -> str:
    return f"[{_COLOURS[state]}]{state}[/]" if state in _COLOURS else state


def _table(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _wait_of(row: Row) -> str:
    if row.fluxjob is None:
        return ""
    status = row.fluxjob.status
    submitted, until = parse_time(status.submitted_at), parse_time(status.started_at) or datetime.now(UTC)
    return f"{max(0, round((until - submitted).total_seconds()))} s" if submitted else ""
