"""What `jobs` of the client returns: the work of a namespace, in the order and with the table of ``kubectl fluxqueue jobs``."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import overload

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.fitting import without_empty
from fluxqueue.cli.tables import columns
from fluxqueue.client.statuses import WorkStatus, status_of

__all__ = ["JobListing", "ListedJob", "listing_of"]


@dataclass(frozen=True)
class ListedJob:
    """One workload of the queue.

    Attributes
    ----------
    title
        What `Client.get` takes: ``job/solver``.
    namespace, pods, account
        Of the workload.
    status
        As `Workload.status` returns it.
    """

    title: str
    namespace: str
    pods: int
    account: str
    status: WorkStatus


class JobListing(Sequence[ListedJob]):
    """Workloads, as a sequence; ``print`` and notebooks show a table.

    Parameters
    ----------
    jobs
        FluxJobs, in the order in which they are shown.
    now
        The time to which waits and run times count.
    namespaces
        Show the namespaces.
    """

    def __init__(self, jobs: Sequence[FluxJob], now: datetime, *, namespaces: bool) -> None:
        self._jobs = [
            ListedJob(rows.object_name(job), job.metadata.namespace, job.spec.pods, job.status.account, status_of(job)) for job in jobs
        ]
        cells = [rows.row(job, now, namespaces=namespaces) for job in jobs]
        self._titles, self._cells = without_empty(rows.headers(namespaces=namespaces), cells)

    @overload
    def __getitem__(self, at: int) -> ListedJob: ...

    @overload
    def __getitem__(self, at: slice) -> list[ListedJob]: ...

    def __getitem__(self, at: int | slice) -> ListedJob | list[ListedJob]:
        return self._jobs[at]

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[ListedJob]:
        return iter(self._jobs)

    def __str__(self) -> str:
        return columns(self._titles, self._cells).rstrip("\n") if self._jobs else "no work is here"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(title)}</th>" for title in self._titles)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self._jobs else "<p>no work is here</p>"


def listing_of(jobs: Iterable[FluxJob], now: datetime, *, queue: str = "", states: Iterable[str] = (), namespaces: bool) -> JobListing:
    """Return the selected FluxJobs in the order of the queue; states are in any case, and none means all."""
    wanted = {state.lower() for state in states}
    chosen = [job for job in jobs if (not queue or job.spec.queue == queue) and (not wanted or rows.state_of(job).lower() in wanted)]
    return JobListing(sorted(chosen, key=rows.order), now, namespaces=namespaces)
