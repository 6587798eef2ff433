"""`kubectl fluxqueue stats`: throughput, waits and utilisation over time, from the history.

The queue answers with workloads (`fluxqueue.cli.history_source`). They are summed here, so any filter of the
history applies. Core-hours count what a workload requested, from its allocation, or its start, to its end, so
that a node that several share counts once. Utilisation is by the cores of today's nodes, where the person may
see them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TextIO

from fluxqueue.cli.fitting import Narrowing, fitted, line_width, without_empty
from fluxqueue.cli.tables import age, columns, instant

__all__ = ["StatsView", "Step", "default_step", "steps_of", "write_steps"]

_NICE_S = (60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_STEPS = 24
_MOST_STEPS = 1_000
_BAR = 10
_NARROWING = Narrowing((("WAIT-P95", 0), ("SUBMITTED", 0), ("CPU-H", 0), ("WAIT-P50", 0)))


@dataclass
class Step:
    """What happened in a step of time; waits are those of work that started in it."""

    start: datetime
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    waits_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    def wait(self, part: float) -> float | None:
        """Return the wait that this part of the work did not exceed; None if nothing started."""
        ordered = sorted(self.waits_s)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None


@dataclass(frozen=True)
class StatsView:
    """How it is shown.

    Attributes
    ----------
    step
        Length of a step.
    cores
        How many cores the nodes have; None: unknown.
    titles
        Show the titles.
    ascii_only
        Draw without the characters of boxes.
    """

    step: timedelta
    cores: float | None = None
    titles: bool = True
    ascii_only: bool = False


def default_step(length: timedelta) -> timedelta:
    """Return a step that divides a time into some twenty parts."""
    wanted = length.total_seconds() / _STEPS
    return timedelta(seconds=next((each for each in _NICE_S if each >= wanted), _NICE_S[-1]))


def steps_of(
    jobs: Iterable[Mapping[str, Any]], since: datetime, until: datetime, step: timedelta
) -> list[Step]:
    """Sum workloads of the history in steps, the oldest first."""
    number = min(max(-int(-((until - since) / step) // 1), 1), _MOST_STEPS)
    steps = [Step(since + step * at) for at in range(number)]

    def at(text: Any) -> Step | None:
        time = instant(str(text)) if text else None
        place = int((time - since) // step) if time is not None else -1
        return steps[place] if time is not None and 0 <= place < number and time < until else None

    for job in jobs:
        if (submitted := at(job.get("submitted_at"))) is not None:
            submitted.submitted += 1
        if (started := at(job.get("started_at"))) is not None:
            started.started += 1
            if job.get("wait_s") is not None:
                started.waits_s.append(float(job["wait_s"]))
        if (ended := at(job.get("finished_at"))) is not None:
            kind = {"Completed": "completed", "Failed": "failed"}.get(str(job.get("state")), "cancelled")
            setattr(ended, kind, getattr(ended, kind) + 1)
        _use(job, steps, step, until)
    return steps


def _use(job: Mapping[str, Any], steps: Sequence[Step], step: timedelta, until: datetime) -> None:
    """Divide the core-seconds of a workload among the steps."""
    start = instant(job.get("allocated_at") or job.get("started_at"))
    cores = job.get("cores")
    if start is None or not isinstance(cores, int | float):
        return
    end = min(instant(job.get("finished_at")) or until, until)
    first = max(int((start - steps[0].start) // step), 0)
    for each in steps[first:]:
        if each.start >= end:
            break
        within = min(end, each.start + step) - max(start, each.start)
        each.cpu_s += max(within.total_seconds(), 0.0) * cores


def write_steps(steps: Sequence[Step], view: StatsView, output: str, out: TextIO) -> None:
    """Write the steps as a table with a line for all of it, or as JSON."""
    if output == "json":
        json.dump([_document(each, view) for each in steps], out, indent=2)
        out.write("\n")
        return
    form = (
        "%H:%M"
        if steps[-1].start - steps[0].start < timedelta(days=1)
        else "%Y-%m-%d %H:%M"
        if view.step.days < 1
        else "%Y-%m-%d"
    )
    rows = [_row(each.start.strftime(form), each, view.step, view) for each in steps]
    total = Step(steps[0].start)
    for each in steps:
        for name in ("submitted", "started", "completed", "failed", "cancelled", "cpu_s"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
        total.waits_s += each.waits_s
    rows.append(_row("all", total, view.step * len(steps), view))
    headers = [
        "TIME",
        "SUBMITTED",
        "STARTED",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "WAIT-P50",
        "WAIT-P95",
        "CPU-H",
        "USE",
    ]
    if (width := line_width(out)) is not None:
        headers, rows = fitted(*without_empty(headers, rows), width, _NARROWING)
    out.write(columns(headers if view.titles else None, rows))


def _row(title: str, step: Step, length: timedelta, view: StatsView) -> list[str]:
    counts = [
        str(number) for number in (step.submitted, step.started, step.completed, step.failed, step.cancelled)
    ]
    waits = ["" if (wait := step.wait(part)) is None else age(wait) for part in (0.5, 0.95)]
    part = _part(step, length, view)
    return [
        title,
        *counts,
        *waits,
        f"{step.cpu_s / 3_600:.1f}",
        "" if part is None else f"{_bar(part, view)} {part:.0%}",
    ]


def _document(step: Step, view: StatsView) -> dict[str, Any]:
    return {
        "start": step.start.isoformat(),
        "seconds": view.step.total_seconds(),
        **{
            name: getattr(step, name) for name in ("submitted", "started", "completed", "failed", "cancelled")
        },
        "wait_p50_s": step.wait(0.5),
        "wait_p95_s": step.wait(0.95),
        "cpu_s": step.cpu_s,
        "use": _part(step, view.step, view),
    }


def _part(step: Step, length: timedelta, view: StatsView) -> float | None:
    return step.cpu_s / (view.cores * length.total_seconds()) if view.cores else None


def _bar(part: float, view: StatsView) -> str:
    full = min(round(part * _BAR), _BAR)
    on, off = ("#", ".") if view.ascii_only else ("█", "░")
    return on * full + off * (_BAR - full)
