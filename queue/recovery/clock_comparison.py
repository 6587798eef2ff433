"""Compares the clocks of the machines that the queue depends on with the time of day
(`fluxqueue.queue.store.clock`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import SystemSnapshot
from fluxqueue.queue.store.clock import NOTABLE_S

__all__ = ["compare_clocks"]

_NAMES: Final[Mapping[str, str]] = {
    "machine": "the clock of the leader's machine",
    "postgres": "the clock of Postgres",
    "api-server": "the clock of the API server",
    "queue": "the time of the queue, which is in its rows,",
}


def compare_clocks(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Yield each clock that is wrong."""
    for clock, ahead_s in snapshot.clocks.items():
        if abs(ahead_s) >= NOTABLE_S:
            direction = "ahead of" if ahead_s > 0 else "behind"
            yield Finding(
                Difference.CLOCK,
                f"clock {clock}",
                f"{_NAMES[clock]} is {abs(ahead_s):.0f} s {direction} the time of day",
            )
