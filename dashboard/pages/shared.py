"""Rows and times that several pages use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.site import Site

__all__ = ["planned_start", "visible_rows"]


def visible_rows(site: Site, visible: Visible) -> Iterable[JobRow]:
    """Return the rows that somebody sees, in no order."""
    return (row for row in site.state.table.rows() if visible.shows(row.namespace))


def planned_start(job: FluxJob) -> datetime | None:
    """Return when pending work is planned to start; None if that is not known."""
    return instant(job.status.reserved_at or job.status.eta)
