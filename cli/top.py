"""`kubectl fluxqueue top`: work, nodes and queues on a screen that stays open, with keys to edit the
workload under the cursor.

The screen shows what `fluxqueue.cli.live_queue` has read, and writes a table again only if its rows have
changed. What takes a request (an edit, an explanation) runs in a thread, so that the keys always answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.fluxjob_edits import title
from fluxqueue.cli.live_queue import LiveQueue, QueueView
from fluxqueue.cli.tables import printable
from fluxqueue.cli.top_tables import MOST_ROWS, Table, job_table, node_table, queue_table, summary

__all__ = ["TopScreen", "show"]

_HELP = "Enter explains, h holds, r releases, c cancels, e shows ended work, / filters, q quits"


class _Text(ModalScreen[None]):
    """A text over the tables, until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "app.pop_screen", "Close")]
    DEFAULT_CSS = (
        "_Text { align: center middle; } _Text VerticalScroll { width: 90%; height: 80%; border: "
        "round $accent; padding: 0 1; }"
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text, markup=False, id="text")
        yield Footer()


class _Question(ModalScreen[bool]):
    """A question that y answers with true, and any of n and Escape with false."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]
    DEFAULT_CSS = (
        "_Question { align: center middle; } _Question Static { width: auto; border: "
        "round $warning; padding: 1 2; }"
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(self._text, markup=False, id="question")
        yield Footer()

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class TopScreen(App[None]):
    """The screen.

    Parameters
    ----------
    live
        The queue.
    now
        The clock.
    refresh_s
        How often what has changed is shown.
    namespaces
        Show the namespaces of work.
    """

    TITLE = "fluxqueue"
    ENABLE_COMMAND_PALETTE = False
    CSS = (
        "DataTable { height: 1fr; } #summary { height: auto; } Input { display: none; "
        "} Input.shown { display: block; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "edit('hold')", "Hold"),
        Binding("r", "edit('release')", "Release"),
        Binding("c", "cancel", "Cancel"),
        Binding("e", "ended", "Ended"),
        Binding("1", "show('jobs')", "Jobs"),
        Binding("2", "show('nodes')", "Nodes"),
        Binding("3", "show('queues')", "Queues"),
        Binding("slash", "filter", "Filter"),
        Binding("question_mark", "help", "Help", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        live: LiveQueue,
        now: Callable[[], datetime],
        *,
        refresh_s: float = 1.0,
        namespaces: bool = False,
    ) -> None:
        super().__init__()
        self._live = live
        self._now = now
        self._refresh_s = refresh_s
        self._namespaces = namespaces
        self._with_ended = False
        self._wanted = ""
        self._by_uid: dict[str, FluxJob] = {}
        self._shown: dict[str, Table] = {}

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen."""
        yield Static("", id="summary", markup=False)
        yield Input(placeholder="part of a name, an object, a queue, a state or a reason", id="filter")
        with TabbedContent(initial="jobs"):
            for name in ("jobs", "nodes", "queues"):
                with TabPane(name.capitalize(), id=name):
                    yield DataTable(id=f"{name}-table", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known, and from now on what changes."""
        self.set_interval(self._refresh_s, self.show_view)
        self.show_view()
        self.query_one("#jobs-table", DataTable).focus()

    def show_view(self) -> None:
        """Show what is known now on the tab that is open."""
        view = self._live.view()
        self.screen_stack[0].query_one("#summary", Static).update("\n".join([summary(view), *view.notes]))
        name = self.screen_stack[0].query_one(TabbedContent).active or "jobs"
        self._fill(name, self._table(name, view))

    def _table(self, name: str, view: QueueView) -> Table:
        if name == "nodes":
            return node_table(view.uses(), self._wanted)
        if name == "queues":
            return queue_table(view.queues, view.jobs, self._wanted)
        self._by_uid = {job.metadata.uid: job for job in view.jobs}
        shown = [job for job in view.jobs if self._with_ended or not State(rows.state_of(job)).ended]
        return job_table(shown, self._now(), namespaces=self._namespaces, wanted=self._wanted)

    def _fill(self, name: str, table: Table) -> None:
        """Write a table; the cursor stays on its row."""
        before, widget = self._shown.get(name), self.screen_stack[0].query_one(f"#{name}-table", DataTable)
        if before == table:
            return
        if before is None or before.titles != table.titles:
            widget.clear(columns=True)
            widget.add_columns(*table.titles)
        at, keys = widget.cursor_row, before.keys if before is not None else ()
        under = keys[at] if 0 <= at < len(keys) else ""
        if before is not None and before.keys == table.keys and before.titles == table.titles:
            self._update(widget, before, table)
        else:
            widget.clear()
            for key, cells in zip(table.keys, table.cells, strict=True):
                widget.add_row(*map(_cell, cells), key=key)
            widget.move_cursor(
                row=table.keys.index(under) if under in table.keys else min(at, max(len(table.keys) - 1, 0))
            )
        self._shown[name] = table

    @staticmethod
    def _update(widget: DataTable[Text], before: Table, table: Table) -> None:
        """Write the cells that have changed."""
        columns = list(widget.columns)
        for key, old, new in zip(table.keys, before.cells, table.cells, strict=True):
            for at, text in enumerate(new):
                if old[at] != text:
                    widget.update_cell(key, columns[at], _cell(text), update_width=True)

    def _job(self) -> FluxJob | None:
        """Return the workload under the cursor."""
        table = self._shown.get("jobs")
        at = self.query_one("#jobs-table", DataTable).cursor_row
        if self.query_one(TabbedContent).active != "jobs" or table is None or not 0 <= at < len(table.keys):
            self.notify("There is no workload under the cursor.", severity="warning")
            return None
        return self._by_uid.get(table.keys[at])

    def action_show(self, name: str) -> None:
        """Open a tab."""
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name}-table", DataTable).focus()
        self.show_view()

    def action_ended(self) -> None:
        """Show or hide work that has ended."""
        self._with_ended = not self._with_ended
        self.show_view()

    def action_help(self) -> None:
        """Say what the keys do."""
        self.notify(f"{_HELP}. At most {MOST_ROWS} rows are shown.")

    def action_filter(self) -> None:
        """Ask for the text that rows must have."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Show only rows with the text."""
        self._wanted = event.value.strip().lower()
        event.input.set_class(bool(self._wanted), "shown")
        self.query_one(f"#{self.query_one(TabbedContent).active}-table", DataTable).focus()
        self.show_view()

    def action_edit(self, verb: str) -> None:
        """Hold, release or cancel the workload under the cursor."""
        if (job := self._job()) is not None:
            self._in_thread(functools.partial(self._live.edit, verb, job), self.notify)

    def action_cancel(self) -> None:
        """Cancel the workload under the cursor, after a question."""
        job = self._job()
        if job is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._in_thread(functools.partial(self._live.edit, "cancel", job), self.notify)

        self.push_screen(
            _Question(f"Cancel {title(job)} in namespace {job.metadata.namespace}? [y/n]"), answered
        )

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Explain the workload of a row."""
        if event.data_table.id == "jobs-table" and (job := self._job()) is not None:
            self._in_thread(
                lambda: self._live.explain(job, self._now()), lambda text: self.push_screen(_Text(text))
            )

    def _in_thread(self, work: Callable[[], str], done: Callable[[str], object]) -> None:
        def run() -> None:
            try:
                text = work()
            except ClusterError as error:
                self.call_from_thread(
                    functools.partial(self.notify, str(error), severity="error", markup=False)
                )
            else:
                self.call_from_thread(done, text)

        self.run_worker(run, thread=True)


def _cell(text: str) -> Text:
    """Return the text of a cell as it is: a string would be read as markup,
    in which a message with brackets is an error.
    """
    return Text(printable(text))


def show(live: LiveQueue, now: Callable[[], datetime], *, refresh_s: float, namespaces: bool) -> int:
    """Show the queue until the person quits."""
    live.start()
    try:
        TopScreen(live, now, refresh_s=refresh_s, namespaces=namespaces).run()
    finally:
        live.stop()
    return 0
