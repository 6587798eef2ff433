"""What `growth` measured of a gang beside strangers, and its table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

__all__ = ["Outcome", "slowest", "summary"]

_SLOWEST = 5
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
    "bound p50",
    "bound p99",
    "missed",
    "blocks",
    "longest s",
    "CPU s",
)


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
        Seconds, and CPU seconds, of the blocks of the queue's event loop that its log has: one in ten seconds at most.
    longest_block
        The stack of the longest of them, from the event loop on.
    slowest
        Of the strangers that waited longest: seconds since the gang's creation, and from the stranger's own creation until the answer of
        the API server, the row, the nodes, the stored release, and the release as this program saw it.
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
    slowest: list[list[float | None]] = field(default_factory=list)


def slowest(
    dsn: str, namespace: str, created: Mapping[str, tuple[float, float]], released_at: Mapping[str, float], began: float
) -> list[list[float | None]]:
    """Return when the steps of the slowest strangers were over, see `Outcome`."""
    with psycopg.connect(dsn) as connection:
        rows = {name: times for name, *times in connection.execute(_STEPS, (namespace,))}
    since = time.time() - time.monotonic()
    longest = sorted(created.keys() & released_at.keys(), key=lambda name: created[name][0] - released_at[name])[:_SLOWEST]
    return [_steps(*created[name], rows.get(name, ()), released_at[name], began, since) for name in longest]


def _steps(at: float, answered: float, times: Sequence[float | None], seen: float, began: float, since: float) -> list[float | None]:
    stored = [round(each - since - at, 2) if each is not None else None for each in times]
    return [round(at - began, 1), round(answered - at, 2), *stored, round(seen - at, 2)]


def summary(outcomes: list[Outcome]) -> str:
    lines = ["".join(f"{title:>12}" for title in _COLUMNS)]
    for each in outcomes:
        waits, bound = (sorted(times) or [float("nan")] for times in (each.released_s, each.strangers_bound_s))
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
