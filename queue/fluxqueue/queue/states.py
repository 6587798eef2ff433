"""Which states a workload may pass through: the one table everything else is checked against.

The store moves a workload only along these arrows (its updates name the states they may start from, taken from here), the table
``transition`` refuses any other pair, and the model-based tests walk the same map. A workload begins as ``Pending``. Requeueing is
``Allocated -> Pending`` for one whose pods never ran and ``-> Draining -> Pending`` for the others; ``Completed``, ``Failed`` and
``Cancelled`` are final (architecture, section 4), but for a cancelled Job that its user resumes: it waits once more. A pending workload
may end in any of the three: its object finished, or vanished, without us.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fluxqueue.api.fluxjobs import State

__all__ = ["ENDED", "LIVE", "TRANSITIONS", "may_follow", "sources"]

ENDED: frozenset[State] = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
"""Nothing follows, unless somebody resumes a cancelled Job."""

LIVE: frozenset[State] = frozenset({State.ALLOCATED, State.RUNNING, State.DRAINING})
"""It holds, or may hold, resources."""

TRANSITIONS: Mapping[State | None, frozenset[State]] = MappingProxyType(
    {
        None: frozenset({State.PENDING}),
        State.PENDING: frozenset({State.ALLOCATED}) | ENDED,
        State.ALLOCATED: frozenset({State.RUNNING, State.DRAINING, State.PENDING}) | ENDED,
        State.RUNNING: frozenset({State.DRAINING}) | ENDED,
        State.DRAINING: frozenset({State.PENDING}) | ENDED,
        State.COMPLETED: frozenset(),
        State.FAILED: frozenset(),
        State.CANCELLED: frozenset({State.PENDING}),
    }
)
"""From each state (None: not there yet) the states that may come next."""


def may_follow(before: State | None, after: State) -> bool:
    """Whether a workload in `before` may be moved to `after`."""
    return after in TRANSITIONS[before]


def sources(after: State) -> frozenset[State]:
    """The states a workload may be moved to `after` from."""
    return frozenset(before for before, follow in TRANSITIONS.items() if before is not None and after in follow)
