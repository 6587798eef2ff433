"""Rows and times that several pages use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.site import Site

__all__ = ["planned_end", "planned_start", "visible_rows"]


def visible_rows(site: Site, visible: Visible) -> Iterable[JobRow]:
    """Return the rows that somebody sees, in no order."""
    return (row for row in site.state.table.rows() if visible.shows(row.namespace))


def planned_start(job: FluxJob) -> datetime | None:
    """Return when pending work is planned to start; None if that is not known."""
    return instant(job.status.reserved_at or job.status.eta)


def planned_end(job: FluxJob, start: datetime) -> datetime | None:
    """Return when work that starts then ends by its duration; None if it has none, or ends after the year 9999."""
    seconds = job.spec.duration_seconds
    try:
        return start + timedelta(seconds=min(seconds, 10 * 366 * 86_400)) if seconds > 0 else None
    except OverflowError:
        return None
