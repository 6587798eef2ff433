"""The state machine of a workload: which state may follow which.

The store moves a workload only along these transitions: its statements name the states that they may start
from, taken from here. The table ``transition`` refuses any other pair, and the model tests walk the same map.
A workload begins as ``Pending``. A requeue is ``Allocated -> Pending`` if its pods never ran, and
``-> Draining -> Pending`` otherwise. A preemption that is withdrawn goes back from ``Draining``.
``Completed``, ``Failed`` and ``Cancelled`` are final (architecture, section 4), except that a cancelled Job
that its user resumes is pending again. A pending workload may end in any of the three: its object finished or
vanished without the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fluxqueue.api.fluxjobs import ENDED, LIVE, State
from fluxqueue.queue.model.records import ReleaseMode, Workload

__all__ = ["ENDED", "LIVE", "TRANSITIONS", "released_at_creation", "sources"]

TRANSITIONS: Mapping[State | None, frozenset[State]] = MappingProxyType(
    {
        None: frozenset({State.PENDING}),
        State.PENDING: frozenset({State.ALLOCATED}) | ENDED,
        State.ALLOCATED: frozenset({State.RUNNING, State.DRAINING, State.PENDING}) | ENDED,
        State.RUNNING: frozenset({State.DRAINING}) | ENDED,
        State.DRAINING: frozenset({State.PENDING, State.ALLOCATED, State.RUNNING}) | ENDED,
        State.COMPLETED: frozenset(),
        State.FAILED: frozenset(),
        State.CANCELLED: frozenset({State.PENDING}),
    }
)
"""From each state (None: before the first) the states that may follow."""


def sources(after: State) -> frozenset[State]:
    """Return the states from which a workload may be moved to `after`."""
    return frozenset(
        before for before, follow in TRANSITIONS.items() if before is not None and after in follow
    )


def released_at_creation(workload: Workload) -> bool:
    """Return True if a workload is about to run or runs, and its pods are released as they are created:
    none waits for the tracker.
    """
    return workload.release_mode in (ReleaseMode.PIN, ReleaseMode.POD) and workload.state in (
        State.ALLOCATED,
        State.RUNNING,
    )
