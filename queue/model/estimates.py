"""When pending workloads are expected to start, as far as that is known. Nothing of it is stored.

The scheduler writes the estimates, and the status of FluxJobs shows them next to stored reservations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.queue.model.records import WorkloadId

__all__ = ["Estimate", "StartEstimates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a pending workload is expected to start.

    Attributes
    ----------
    position
        Its position in its queue; the first is 1. None: it waits for other work or for a time.
    eta
        The latest expected start if stated durations are kept; None if nothing could be planned.
    eta_soonest
        The other end of the range: if durations are kept as badly as lately.
    eta_first
        The first estimate ever given.
    reserved
        True if ``eta`` is a reservation, False if it is only planned ahead.
    """

    position: int | None
    eta: datetime | None = None
    eta_soonest: datetime | None = None
    eta_first: datetime | None = None
    reserved: bool = False


class StartEstimates(Mapping[WorkloadId, Estimate]):
    """The present estimates by workload: those of the first in each queue."""

    def __init__(self) -> None:
        self._by_workload: dict[WorkloadId, Estimate] = {}

    def __getitem__(self, workload: WorkloadId) -> Estimate:
        return self._by_workload[workload]

    def __iter__(self) -> Iterator[WorkloadId]:
        return iter(self._by_workload)

    def __len__(self) -> int:
        return len(self._by_workload)

    def replace_all(self, estimates: Mapping[WorkloadId, Estimate]) -> None:
        """Forget all estimates and keep these."""
        self._by_workload = dict(estimates)

    def discard(self, workload: WorkloadId) -> None:
        """Forget the estimate of a workload that started or ended."""
        self._by_workload.pop(workload, None)
