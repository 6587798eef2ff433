"""What `growth` measured of a gang beside strangers, and its table."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

__all__ = ["Outcome", "Steps", "strangers_steps", "summary"]

_STEPS = """
    SELECT w.name, extract(epoch FROM w.submitted_at)::float8, extract(epoch FROM a.granted_at)::float8,
        extract(epoch FROM a.released_at)::float8
    FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id WHERE w.namespace = %s
"""
_COLUMNS = (
    "by",
    "kind",
    "pods",
    "all bound s",
    "CPU ms/pod",
    "restarts",
    "lost",
    "p50 s",
    "p99 s",
    "max s",
    "nodes p99",
    "bound p50",
    "bound p99",
    "missed",
    "blocks",
    "longest s",
    "CPU s",
)


@dataclass(frozen=True)
class Steps:
    """What one stranger waited for.

    Attributes
    ----------
    began_s
        When it was created, in seconds since the creation of the gang.
    answered_s, row_s, nodes_s, released_s, seen_s
        Seconds from its creation until the API server had answered, it had a row, nodes, a release in the
        table, and until this program saw its release. What is not in the table is None.
    """

    began_s: float
    answered_s: float
    row_s: float | None
    nodes_s: float | None
    released_s: float | None
    seen_s: float

    @property
    def matching_s(self) -> float:
        """From the answer of the API server until it had nodes:
        what the queue alone takes, and the way of a watch event.
        """
        return max(0.0, self.nodes_s - self.answered_s) if self.nodes_s is not None else math.inf


@dataclass
class Outcome:
    """What one gang cost, and how long strangers waited meanwhile.

    Attributes
    ----------
    managed
        By the queue.
    kind, pods
        The gang.
    bound_s
        Seconds until all its pods were bound; None if they were not in time.
    bound
        Its pods that were bound at the end.
    cpu_ms_of_pod
        CPU milliseconds of each program for each pod.
    restarts, leases_lost
        Of the queue.
    released_s, strangers_bound_s
        From creation to release, and until its pod was bound, of each stranger.
    missed
        Strangers whose pods were not bound at all.
    blocks
        Seconds, and CPU seconds, of the blocks of the queue's event loop that its log has: one in ten seconds
        at most.
    longest_block
        The stack of the longest of them, from the event loop on.
    steps
        Of each released stranger, the slowest first.
    """

    managed: bool
    kind: str
    pods: int
    bound_s: float | None
    bound: int
    cpu_ms_of_pod: Mapping[str, float]
    restarts: int
    leases_lost: int
    released_s: list[float] = field(default_factory=list)
    strangers_bound_s: list[float] = field(default_factory=list)
    missed: int = 0
    blocks: list[tuple[float, float]] = field(default_factory=list)
    longest_block: str = ""
    steps: list[Steps] = field(default_factory=list)


def strangers_steps(
    dsn: str,
    namespace: str,
    created: Mapping[str, tuple[float, float]],
    released_at: Mapping[str, float],
    began: float,
) -> list[Steps]:
    """Return when the steps of each released stranger were over, the slowest first."""
    with psycopg.connect(dsn) as connection:
        rows = {name: times for name, *times in connection.execute(_STEPS, (namespace,))}
    since = time.time() - time.monotonic()
    found = []
    for name in created.keys() & released_at.keys():
        at, answered = created[name]
        row_s, nodes_s, released_s = (
            each - since - at if each is not None else None for each in rows.get(name, (None,) * 3)
        )
        found.append(Steps(at - began, answered - at, row_s, nodes_s, released_s, released_at[name] - at))
    return sorted(found, key=lambda each: each.seen_s, reverse=True)


def summary(outcomes: list[Outcome]) -> str:
    lines = ["".join(f"{title:>12}" for title in _COLUMNS)]
    for each in outcomes:
        waits, bound, matching = (
            sorted(times) or [float("nan")]
            for times in (each.released_s, each.strangers_bound_s, [steps.matching_s for steps in each.steps])
        )
        figures = [
            "queue" if each.managed else "plain",
            each.kind,
            each.pods,
            f"{each.bound_s:.1f}" if each.bound_s is not None else f"{each.bound} only",
            f"{each.cpu_ms_of_pod['queue']:.2f}",
            each.restarts,
            each.leases_lost,
            f"{statistics.median(waits):.2f}",
            f"{_p99(waits):.2f}",
            f"{waits[-1]:.2f}",
            f"{_p99(matching):.2f}",
            f"{statistics.median(bound):.2f}",
            f"{_p99(bound):.2f}",
            each.missed,
            len(each.blocks),
            f"{max((seconds for seconds, _ in each.blocks), default=0):.2f}",
            f"{max((cpu_s for _, cpu_s in each.blocks), default=0):.2f}",
        ]
        lines.append("".join(f"{figure:>12}" for figure in figures))
    return "\n".join(lines)


def _p99(waits: Sequence[float]) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * 0.99))]
