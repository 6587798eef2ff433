"""What must have happened before a workload may start: other workloads started or ended, or a time has come.

A name means one object: the one that has it when the queue first sees it. From then on the uid counts, so an
object that is deleted and created again is another one. A dependency that is satisfied stays so, also if the
workload is requeued later. One that can never be satisfied says why.
"""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from fluxqueue.api.dependencies import WorkloadDependency

__all__ = ["NO_START_CONDITIONS", "DependencyState", "StartConditions", "TrackedDependency", "track"]


class DependencyState(enum.StrEnum):
    """What is known of a dependency."""

    OPEN = "open"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"
    """It can never be satisfied."""


class TrackedDependency(WorkloadDependency, frozen=True, omit_defaults=True, kw_only=True):
    """A dependency, and what came of it so far.

    Attributes
    ----------
    target
        Uid of the workload that it waits for; empty until an object of that name is seen.
    owner
        Uid of the MiniCluster whose Job is the target; empty for other kinds.
    state
        What is known.
    not_before
        If it is satisfied and has a delay: from when on.
    detail
        Why it is impossible.
    """

    target: str = ""
    owner: str = ""
    state: DependencyState = DependencyState.OPEN
    not_before: datetime | None = None
    detail: str = ""

    @property
    def asked(self) -> WorkloadDependency:
        """The entry as it was written."""
        return WorkloadDependency(
            condition=self.condition, kind=self.kind, name=self.name, delay_s=self.delay_s
        )

    @property
    def open(self) -> bool:
        """True if it may still be satisfied."""
        return self.state is DependencyState.OPEN


class StartConditions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What must have happened before a workload may start.

    Attributes
    ----------
    after
        Other workloads that must have started or ended.
    begin_at
        The earliest start that its user allows.
    singleton
        Of the workloads of a namespace with this name, one runs at a time, in the order of submission. Empty:
        none.
    deadline
        When its user needs it to be done. It keeps nothing from starting.
    """

    after: tuple[TrackedDependency, ...] = ()
    begin_at: datetime | None = None
    singleton: str = ""
    deadline: datetime | None = None

    @property
    def not_before(self) -> datetime | None:
        """The earliest start by times alone, as far as they are known; None if there is none."""
        return max(
            (at for at in (self.begin_at, *(each.not_before for each in self.after)) if at is not None),
            default=None,
        )


NO_START_CONDITIONS = StartConditions()
"""The value of nearly every workload."""


def track(asked: WorkloadDependency) -> TrackedDependency:
    """Return a dependency of which nothing is known yet."""
    return TrackedDependency(
        condition=asked.condition, kind=asked.kind, name=asked.name, delay_s=asked.delay_s
    )
