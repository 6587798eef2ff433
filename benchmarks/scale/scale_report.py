"""The figures of the scale benchmark as a table, with the growth between its points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["table"]

COLUMNS = (
    ("pending", "pending", "{:,.0f}"),
    ("running", "running", "{:,.0f}"),
    ("cycle_s", "cycle after one end, mean s", "{:.3f}"),
    ("end_cpu_ms", "CPU ms per end: queue, Fluxion, Postgres", "{}"),
    ("intake_rows_per_s", "intake rows/s", "{:.0f}"),
    ("intake_cpu_ms", "CPU ms per row: queue, Fluxion, Postgres", "{}"),
    ("start_ready_s", "start to ready s", "{:.1f}"),
    ("start_cycle_s", "start to first cycle s", "{:.1f}"),
    ("memory_mib", "MiB: queue, Fluxion, Postgres", "{}"),
)
GROWING = ("cycle_s", "start_ready_s", "start_cycle_s", "queue_mib", "fluxion_mib")

Point = Mapping[str, float | str]


def table(points: Sequence[Point], nodes: int, policy: str) -> str:
    """Return Markdown: a row for each point, and for each figure the exponent with which it grows from the
    first point to the last.
    """
    lines = [
        f"{nodes:,} nodes, {policy}",
        "",
        "| " + " | ".join(title for _, title, _ in COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
    ]
    lines += [
        "| " + " | ".join(form.format(point[name]) for name, _, form in COLUMNS) + " |" for point in points
    ]
    if len(points) > 1:
        lines += ["", "| figure | grows with the number of pending as |", "|---|---|"]
        lines += [f"| {name} | n^{growth(points, name):.2f} |" for name in GROWING]
    return "\n".join(lines)


def growth(points: Sequence[Point], name: str) -> float:
    """Return the exponent of a figure's growth between the last two points: 1 is linear, 2 is quadratic."""
    (before, first), (after, last) = ((float(point["pending"]), float(point[name])) for point in points[-2:])
    return (
        math.log(last / first) / math.log(after / before)
        if first > 0 and last > 0 and after > before
        else 0.0
    )
