"""The announced starts of workloads, and whether they came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.verdicts import Row, parse_time

__all__ = ["AnnouncedStart", "StartExpectations"]

_WHOLE_SECONDS = timedelta(seconds=1)
"""The resolution of times in FluxJobs."""
_BUSY = timedelta(seconds=30)
"""By so much a start may be late: on a busy machine, what runs before it ends later than it said."""


@dataclass(frozen=True)
class AnnouncedStart:
    """What the FluxJob of a waiting workload announced about its start."""

    reserved_at: datetime | None = None
    eta: datetime | None = None


class StartExpectations:
    """The announced starts of workloads, and whether they came true.

    A FluxJob has a reservation and an estimate only while the workload waits, so they must be recorded during
    that time.
    """

    def __init__(self) -> None:
        self.announced: dict[str, AnnouncedStart] = {}

    def record(self, rows: Sequence[Row]) -> None:
        """Record the announcements of waiting workloads; the first one of each counts."""
        for row in rows:
            status = row.fluxjob.status if row.fluxjob and row.state == State.PENDING else None
            if status is not None and (status.eta_first or status.reserved_at):
                before = self.announced.get(row.example.uid, AnnouncedStart())
                self.announced[row.example.uid] = AnnouncedStart(
                    before.reserved_at or parse_time(status.reserved_at),
                    before.eta or parse_time(status.eta_first),
                )

    def kept(self, rows: Sequence[Row]) -> list[str]:
        """Return the announcements that came true, as sentences."""
        started = [(row, at) for row in self._reserved(rows) if (at := _started(row)) is not None]
        ahead = [
            (row, lead) for row in rows if (lead := _lead(row, rows)) is not None and lead > timedelta(0)
        ]
        return [
            *(f"{row.title} {self._announcement(row)} and started at {at:%H:%M:%S}" for row, at in started),
            *(
                (
                    f"{row.title} was applied after job/{row.example.ahead_of} and started "
                    f"{lead.total_seconds():.0f} s before it, in a gap"
                )
                for row, lead in ahead
            ),
        ]

    def late_s(self, rows: Sequence[Row]) -> float:
        """Return by how much the latest start was later than announced."""
        found = [timedelta(0)]
        for row in self._reserved(rows):
            announced, started = self.announced.get(row.example.uid, AnnouncedStart()), _started(row)
            if started is not None and announced.eta is not None:
                found.append(
                    started - max(announced.eta, announced.reserved_at or announced.eta) - _WHOLE_SECONDS
                )
        return max(found).total_seconds()

    def broken(self, rows: Sequence[Row]) -> list[str]:
        """Return the announcements that are missing or did not come true, as sentences."""
        wrong = []
        for row in self._reserved(rows):
            announced, started = self.announced.get(row.example.uid, AnnouncedStart()), _started(row)
            if announced.reserved_at is None:
                wrong.append(f"{row.title} should have had nodes reserved while it waited, and had none")
            elif announced.eta is None:
                wrong.append(f"{row.title} never had an estimated start")
            elif started is None or started > max(announced.reserved_at, announced.eta) + _BUSY:
                when = f"at {started:%H:%M:%S}" if started else "never"
                wrong.append(f"{row.title} {self._announcement(row)}, but started {when}")
        behind = [
            row
            for row in rows
            if row.example.ahead_of and ((lead := _lead(row, rows)) is None or lead <= timedelta(0))
        ]
        return [
            *wrong,
            *(
                f"{row.title} should have been backfilled ahead of job/{row.example.ahead_of}, and was not"
                for row in behind
            ),
        ]

    def _reserved(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.example.reserved]

    def _announcement(self, row: Row) -> str:
        announced = self.announced.get(row.example.uid, AnnouncedStart())
        reserved = (
            f"had nodes reserved from {announced.reserved_at:%H:%M:%S} on"
            if announced.reserved_at
            else "had no nodes reserved"
        )
        return (
            f"{reserved}, was expected to start at {announced.eta:%H:%M:%S} at the latest"
            if announced.eta
            else reserved
        )


def _started(row: Row) -> datetime | None:
    return parse_time(row.fluxjob.status.allocated_at) if row.fluxjob else None


def _lead(row: Row, rows: Sequence[Row]) -> timedelta | None:
    """Return how long a workload was allocated before the one that it must be backfilled ahead of."""
    other = next(
        (each for each in rows if row.example.ahead_of and each.example.name == row.example.ahead_of), None
    )
    mine, theirs = _started(row), _started(other) if other is not None else None
    return theirs - mine if mine is not None and theirs is not None else None
