"""One FluxJob as a row of the table: its cells, what it is sorted by, and its HTML, which is made once for
each change.

A row is the same for everybody who may see it. Ages and times to come are not in it: it has the times
themselves, and the script of the page says how long ago they are. So a row is made again only when its
FluxJob changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from fluxqueue.api.fluxjobs import LIVE, FluxJob, Reason, State
from fluxqueue.api.formatting import format_nodes
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.node_uses import NodeUse, node_uses, requested
from fluxqueue.dashboard.rendering import environment, how_long

__all__ = ["SORTS", "JobRow", "planned_end", "reason_of"]

_RANK: Final = {State.RUNNING: 0, State.DRAINING: 0, State.ALLOCATED: 1, State.PENDING: 2}
_ENDED: Final = 3
_LATE: Final = float(1 << 62)
_NODES_WIDTH: Final = 48
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_NO_PROGRESS: Final = '<progress max="1" value="0"'
"""Its part changes with the time, and the row does not."""


SORTS: Final = (
    "order",
    "namespace",
    "job",
    "user",
    "queue",
    "state",
    "priority",
    "position",
    "eta",
    "submitted",
    "pods",
)
"""What the table can be sorted by."""


def reason_of(job: FluxJob) -> str:
    """Return why a job waits; empty if it does not."""
    return job.status.reason or (Reason.HELD if job.spec.hold and state_of(job) == State.PENDING else "")


def planned_end(job: FluxJob, start: datetime) -> datetime | None:
    """Return when work that starts then ends by its duration;
    None if it has none, or ends after the year 9999.
    """
    seconds = job.spec.duration_seconds
    try:
        return start + timedelta(seconds=min(seconds, 10 * 366 * 86_400)) if seconds > 0 else None
    except OverflowError:
        return None


class JobRow:
    """A row.

    Parameters
    ----------
    job
        The FluxJob; a changed one is another row.
    gone
        When the object was deleted, in seconds of the epoch; None while it is there.
    """

    def __init__(self, job: FluxJob, gone: float | None = None) -> None:
        self.job = job
        self.gone = gone
        meta: ObjectMeta = job.metadata
        self.uid = meta.uid
        self.namespace = meta.namespace
        self.queue = job.spec.queue
        self.state = state_of(job)
        self.reason = reason_of(job)
        self._keys: dict[str, tuple[Any, ...]] = {}

    @property
    def version(self) -> str:
        """The resourceVersion of the FluxJob."""
        return self.job.metadata.resource_version

    @property
    def title(self) -> str:
        """The user's object, or the name of the FluxJob."""
        return object_name(self.job) or self.job.metadata.name

    @cached_property
    def search(self) -> str:
        """What a text filter looks at, in lower case."""
        job, status = self.job, self.job.status
        names = (
            self.namespace,
            self.title,
            job.metadata.name,
            self.queue,
            status.account,
            status.submitted_by,
        )
        parts = (*names, self.state, self.reason, status.nodes)
        return " ".join(parts).lower()

    def key(self, sort: str) -> tuple[Any, ...]:
        """Return what the row is sorted by; names last, so that the order is always the same."""
        if (key := self._keys.get(sort)) is None:
            key = self._keys[sort] = (*getattr(self, f"_by_{sort}"), self.namespace, self.job.metadata.name)
        return key

    @cached_property
    def html(self) -> str:
        """The ``<tr>``."""
        return _ROW.render(row=self, job=self.job, status=self.job.status)

    def shown(self, now: datetime) -> str:
        """Return the ``<tr>`` with the part of the time limit that has passed,
        for a browser without scripts.
        """
        if self.began is None or (ends := self.ends) is None:
            return self.html
        part = (now - self.began) / max(ends - self.began, timedelta(seconds=1))
        over = ' class="over"' if part > 1 else ""
        return self.html.replace(
            _NO_PROGRESS, f'<progress{over} max="1" value="{min(max(part, 0.0), 1.0):.3f}"', 1
        )

    @property
    def user(self) -> str:
        """The name of who submitted it, without what all ServiceAccounts have before theirs."""
        return self.job.status.submitted_by.removeprefix(_SERVICE_ACCOUNT)

    @property
    def duration(self) -> str:
        """The stated duration, in words."""
        return how_long(self.job.spec.duration_seconds) if self.job.spec.duration_seconds else ""

    @property
    def eta(self) -> str:
        """The reserved or estimated start, as it is written; empty if there is none."""
        return (
            (self.job.status.reserved_at or self.job.status.eta or "") if self.state == State.PENDING else ""
        )

    @cached_property
    def began(self) -> datetime | None:
        """Since when it runs, or has nodes; None if it does not."""
        status = self.job.status
        return (instant(status.started_at) or instant(status.allocated_at)) if self.state in LIVE else None

    @property
    def ends(self) -> datetime | None:
        """When it ends by its duration; None if it does not run, or has none."""
        return planned_end(self.job, self.began) if self.began is not None else None

    @property
    def ran(self) -> str:
        """How long it ran, in words; empty if it has not ended or is not known to have run."""
        begin, end = instant(self.job.status.started_at), instant(self.job.status.finished_at)
        return (
            how_long((end - begin).total_seconds())
            if begin is not None and end is not None and self.state not in LIVE
            else ""
        )

    @cached_property
    def nodes(self) -> str:
        """The nodes, shortened."""
        text = format_nodes(self.job.status.nodes)
        return text if len(text) <= _NODES_WIDTH else f"{text[: _NODES_WIDTH - 3]}..."

    @cached_property
    def shares(self) -> Mapping[str, NodeUse]:
        """What the job has on each of its nodes."""
        return node_uses(self.job.spec.jobspec, self.job.status.nodes)

    @cached_property
    def requested(self) -> Mapping[str, int]:
        """What it asks for in all, in the graph's units."""
        return requested(self.job.spec.jobspec)

    @cached_property
    def held(self) -> tuple[float, float]:
        """From when to when it had its nodes, in seconds of the epoch: without an end while it has them;
        nothing if it never had.

        Work whose object was deleted while it had nodes had them until then.
        """
        begin, end = (
            instant(self.job.status.allocated_at or self.job.status.started_at),
            instant(self.job.status.finished_at),
        )
        if begin is None or (end is None and self.state not in LIVE):
            return 0.0, 0.0
        if self.state in LIVE or end is None:
            return begin.timestamp(), math.inf if self.gone is None else self.gone
        return begin.timestamp(), end.timestamp()

    def without_object(self, gone: float) -> JobRow:
        """Return what is remembered of it when its object is deleted:
        all but the jobspec, which may be large.
        """
        row = JobRow(replace(self.job, spec=replace(self.job.spec, jobspec="")), gone)
        row.requested = self.requested
        return row

    @property
    def _submitted(self) -> float:
        at = instant(self.job.status.submitted_at or self.job.metadata.creation_timestamp)
        return at.timestamp() if at is not None else 0.0

    @property
    def _by_order(self) -> tuple[Any, ...]:
        status = self.job.status
        rank = _RANK.get(State(self.state), _ENDED) if self.state in list(State) else _ENDED
        if rank == _ENDED:
            ended = instant(status.finished_at)
            return rank, -ended.timestamp() if ended else 0.0
        if rank == _RANK[State.PENDING]:
            return rank, float(status.position) if status.position is not None else _LATE, self._submitted
        return rank, self._submitted

    @property
    def _by_namespace(self) -> tuple[Any, ...]:
        return ()

    @property
    def _by_job(self) -> tuple[Any, ...]:
        return (self.title,)

    @property
    def _by_user(self) -> tuple[Any, ...]:
        return (self.job.status.submitted_by,)

    @property
    def _by_queue(self) -> tuple[Any, ...]:
        return (self.queue,)

    @property
    def _by_state(self) -> tuple[Any, ...]:
        return self.state, self.reason

    @property
    def _by_priority(self) -> tuple[Any, ...]:
        return -self.job.spec.priority, self._submitted

    @property
    def _by_position(self) -> tuple[Any, ...]:
        return (self.job.status.position if self.job.status.position is not None else _LATE,)

    @property
    def _by_eta(self) -> tuple[Any, ...]:
        at = instant(self.eta)
        return (at.timestamp() if at is not None else _LATE,)

    @property
    def _by_submitted(self) -> tuple[Any, ...]:
        return (-self._submitted,)

    @property
    def _by_pods(self) -> tuple[Any, ...]:
        return (-self.job.spec.pods,)


_ROW: Final = environment().get_template("row.html")
