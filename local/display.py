"""The display of progress: a bar on a terminal, plain lines in a log.

Each step shows what is done, with its usual duration if that is known, and at its end the time that it took.
In a log, a long step prints a line from time to time, so that it is visibly alive.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Display"]

_REMIND_S = 20.0


class Display:
    """Shows one step after the other; a context manager.

    A terminal gets a progress bar, any other output one line per event.
    """

    def __init__(self) -> None:
        self._output = sys.stderr
        self._began = time.monotonic()
        self._step: str | None = None
        self._step_began = 0.0
        self._reminded = 0.0
        self._done = 0
        self._total: int | None = None
        self._bar: object | None = None
        self._terminal = self._output.isatty()

    def step(self, text: str, total: int | None = None) -> None:
        """Start a step; the previous one ends."""
        self._finish()
        self._step, self._total, self._done = text, total, 0
        self._step_began = self._reminded = time.monotonic()
        if self._terminal:
            self._open_bar(text, total)
        elif total is not None:
            self.line(f"{text} ...")

    def advance(self, text: str, units: int = 1) -> None:
        """Mark units of the step as done."""
        self._done += units
        if self._terminal:
            self._move_bar(text)
        elif time.monotonic() - self._reminded > _REMIND_S:
            self._reminded = time.monotonic()
            share = f"{min(99, 100 * self._done // self._total)} %, " if self._total else ""
            self.line(f"  ... {share}{time.monotonic() - self._step_began:.0f} s so far: {text}")

    def line(self, text: str) -> None:
        """Print a separate line."""
        if self._terminal and self._bar is not None:
            from rich.progress import Progress

            assert isinstance(self._bar, Progress)
            self._bar.console.print(text, markup=False, highlight=False)
            return
        print(text, file=self._output, flush=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(failed=error is not None)

    def _finish(self, failed: bool = False) -> None:
        if self._step is None:
            return
        self._close_bar()
        mark = "failed:" if failed else "done:"
        self.line(
            f"{time.monotonic() - self._began:6.1f} s  {mark} {self._step} "
            f"({time.monotonic() - self._step_began:.1f} s)"
        )
        self._step = None

    def _open_bar(self, text: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *([BarColumn(24)] if total else []),
            TimeElapsedColumn(),
        ]
        detail = TextColumn("[dim]{task.fields[detail]}", table_column=None)
        progress = Progress(*columns, detail, console=Console(file=self._output), transient=True)
        progress.add_task(text, total=total, detail="")
        progress.start()
        self._bar = progress

    def _move_bar(self, text: str) -> None:
        from rich.markup import escape
        from rich.progress import Progress

        assert isinstance(self._bar, Progress)
        task = self._bar.tasks[0]
        self._bar.update(
            task.id,
            completed=min(self._done, self._total - 1) if self._total else None,
            detail=escape(text[-50:]),
        )

    def _close_bar(self) -> None:
        if self._bar is not None:
            from rich.progress import Progress

            assert isinstance(self._bar, Progress)
            self._bar.stop()
            self._bar = None
