"""From rows to records and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import Reason, State

__all__ = ["Counts", "QueueRow", "StalledTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A FluxQueue; ``spec`` is its specification as JSON text."""

    name: str
    generation: int
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many workloads of a queue stand in a state for a reason, and how many slots they want."""

    queue: str
    state: State
    reason: Reason
    workloads: int
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTask:
    """A control task marked as being done."""

    id: int
    task: str
    started_at: datetime
