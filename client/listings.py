"""What `jobs` and `queues` of the client return:
sequences that print as the tables of ``kubectl fluxqueue``.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, overload

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue, QueueLimits
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.fitting import without_empty
from fluxqueue.cli.queue_listing import QUEUE_TITLES, cores_by_queue, queue_rows, with_default
from fluxqueue.cli.tables import columns
from fluxqueue.client.errors import NotInstalled, translated
from fluxqueue.client.statuses import WorkStatus, status_of
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXJOBS, FLUXQUEUES

if TYPE_CHECKING:
    from rich.table import Table

    from fluxqueue.kube.transport import Api

__all__ = [
    "JobListing",
    "ListedJob",
    "ListedQueue",
    "Listing",
    "QueueListing",
    "listing_of",
    "listing_of_kind",
    "read_queues",
]

T = TypeVar("T")


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


@dataclass(frozen=True)
class ListedQueue:
    """One queue.

    Attributes
    ----------
    name, state, policy
        Of the FluxQueue; ``state`` is ``open``, ``held`` or ``drained``.
    pending, running, nodes
        Workloads that wait, workloads that have nodes, and nodes in use; None for ``default`` without a
        FluxQueue.
    cores
        Cores in use; None if you may not list the work of all namespaces.
    most_running, most_nodes, most_cores
        Its limits; None is no limit.
    """

    name: str
    state: str
    policy: str
    pending: int | None
    running: int | None
    nodes: int | None
    cores: float | None
    most_running: int | None = None
    most_nodes: int | None = None
    most_cores: int | None = None


class Listing(Sequence[T]):
    """Items as a sequence; ``print`` and notebooks show a table,
    with a note below it if there is something to know.
    """

    def __init__(
        self,
        items: Sequence[T],
        titles: Sequence[str],
        cells: Sequence[Sequence[str]],
        nothing: str,
        note: str = "",
    ) -> None:
        self._items = list(items)
        self._titles, self._cells = without_empty(list(titles), [list(row) for row in cells])
        self._nothing = nothing
        self._note = note

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> list[T]: ...

    def __getitem__(self, at: int | slice) -> T | list[T]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __str__(self) -> str:
        shown = columns(self._titles, self._cells).rstrip("\n") if self._items else self._nothing
        return f"{shown}\n{self._note}" if self._note else shown

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(title)}</th>" for title in self._titles)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells
        )
        nothing = f"<p>{html.escape(self._nothing)}</p>"
        note = f"<p>{html.escape(self._note)}</p>" if self._note else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self._items else nothing
        ) + note

    def __rich__(self) -> Table | str:
        """Return a table of ``rich``, which calls this; the client itself does not need it."""
        from rich.table import Table
        from rich.text import Text

        if not self._items:
            return str(self)
        table = Table(*self._titles, caption=self._note or None)
        for row in self._cells:
            table.add_row(*map(Text, row))
        return table


class JobListing(Listing[ListedJob]):
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
        items = [
            ListedJob(
                rows.object_name(job),
                job.metadata.namespace,
                job.spec.pods,
                job.status.account,
                status_of(job),
            )
            for job in jobs
        ]
        cells = [rows.row(job, now, namespaces=namespaces) for job in jobs]
        super().__init__(items, rows.headers(namespaces=namespaces), cells, "no work is here")


class QueueListing(Listing[ListedQueue]):
    """The queues, as a sequence; ``print`` and notebooks show the table of ``kubectl fluxqueue queues``.

    Parameters
    ----------
    queues
        The FluxQueues.
    cores
        Cores in use by queue; None: not known.
    now
        The present time.
    """

    def __init__(self, queues: Sequence[FluxQueue], cores: Mapping[str, float] | None, now: datetime) -> None:
        listed = with_default(queues)
        items = [_listed(queue, cores, counted=queue in queues) for queue in listed]
        super().__init__(items, QUEUE_TITLES, queue_rows(queues, cores, now), "")


def _listed(queue: FluxQueue, cores: Mapping[str, float] | None, *, counted: bool) -> ListedQueue:
    status, limits = queue.status, queue.spec.limits or QueueLimits()
    return ListedQueue(
        name=queue.metadata.name,
        state=queue.spec.state,
        policy=queue.spec.policy,
        pending=status.pending if counted else None,
        running=status.running if counted else None,
        nodes=status.nodes_in_use if counted else None,
        cores=None if cores is None else cores.get(queue.metadata.name, 0.0),
        most_running=limits.running,
        most_nodes=limits.nodes,
        most_cores=limits.cores,
    )


def listing_of(
    jobs: Iterable[FluxJob], now: datetime, *, queue: str = "", states: Iterable[str] = (), namespaces: bool
) -> JobListing:
    """Return the selected FluxJobs in the order of the queue; states are in any case, and none means all."""
    wanted = {state.lower() for state in states}
    chosen = [
        job
        for job in jobs
        if (not queue or job.spec.queue == queue) and (not wanted or rows.state_of(job).lower() in wanted)
    ]
    return JobListing(sorted(chosen, key=rows.order), now, namespaces=namespaces)


@contextmanager
def listing_of_kind(kind: str) -> Iterator[None]:
    """Raise the client's errors while objects are listed:
    `NotInstalled` if this kind of fluxqueue's is not served.
    """
    try:
        yield
    except NotFound as error:
        raise NotInstalled(f"the cluster does not serve {kind} ({error}): install fluxqueue") from None
    except ApiError as error:
        raise translated(error) from None


async def read_queues(api: Api, now: datetime) -> QueueListing:
    """Return the queues, with the cores in use for those who may list the work of all namespaces.

    Raises
    ------
    NotInstalled
        The cluster has no FluxQueues.
    FluxQueueError
        The API server refuses, or does not answer.
    """
    with listing_of_kind("FluxQueues"):
        found = await api.list(FLUXQUEUES)
    try:
        cores = cores_by_queue(await api.list(FLUXJOBS))
    except Forbidden:
        cores = None
    except ApiError as error:
        raise translated(error) from None
    return QueueListing(found, cores, now)
