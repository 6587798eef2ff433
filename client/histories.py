"""What `history` of the client returns: work of the past,
as a sequence that prints as the table of ``kubectl fluxqueue history``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fluxqueue.api import hostlists
from fluxqueue.cli.tables import instant
from fluxqueue.client.listings import Listing

__all__ = ["HistoryListing", "PastWork"]


@dataclass(frozen=True)
class PastWork:
    """One workload of the history.

    Attributes
    ----------
    title, namespace
        ``job/solver``, and where.
    queue, account, user, priority, pods
        Of the workload; ``user`` is empty where nobody recorded it.
    state, outcome, reason, message
        As of `WorkStatus`.
    submitted_at, allocated_at, started_at, finished_at
        When that happened; None: it did not.
    wait, run
        How long it waited and ran; None: not at all.
    cores
        Cores that it asked for.
    nodes
        The node of each rank.
    requeues
        How often it lost its nodes and waited again.
    """

    title: str
    namespace: str
    queue: str
    account: str
    user: str
    priority: int
    pods: int
    state: str
    outcome: str
    reason: str
    message: str
    submitted_at: datetime | None
    allocated_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    wait: timedelta | None
    run: timedelta | None
    cores: float | None
    nodes: tuple[str, ...]
    requeues: int


class HistoryListing(Listing[PastWork]):
    """Work of the past, as a sequence; ``print`` and notebooks show a table.

    Parameters
    ----------
    rows
        As the queue answered them.
    now
        The present time, in whose zone times are shown.
    namespaces
        Show the namespaces.
    more
        There is more than was asked for.
    asked
        The parameters of ``/history``.

    Attributes
    ----------
    more
        As above: raise ``limit``, or name a shorter time.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        now: datetime,
        *,
        namespaces: bool,
        more: bool,
        asked: Mapping[str, str],
    ) -> None:
        from fluxqueue.cli.history import history_row, history_titles, nothing_found

        cells = [history_row(row, now, namespaces=namespaces) for row in rows]
        super().__init__(
            [_past(row) for row in rows], history_titles(namespaces=namespaces), cells, nothing_found(asked)
        )
        self.more = more


def _past(row: Mapping[str, Any]) -> PastWork:
    try:
        nodes = tuple(hostlists.decode(row.get("hosts") or ""))
    except hostlists.InvalidHostlist:
        nodes = ()
    return PastWork(
        title=f"{str(row['kind']).lower()}/{row['name']}",
        namespace=_text(row, "namespace"),
        queue=_text(row, "queue"),
        account=_text(row, "account"),
        user=_text(row, "user"),
        priority=int(row["priority"]),
        pods=int(row["pods"]),
        state=_text(row, "state"),
        outcome=_text(row, "outcome"),
        reason=_text(row, "reason"),
        message=_text(row, "message"),
        submitted_at=instant(row.get("submitted_at")),
        allocated_at=instant(row.get("allocated_at")),
        started_at=instant(row.get("started_at")),
        finished_at=instant(row.get("finished_at")),
        wait=_span(row.get("wait_s")),
        run=_span(row.get("run_s")),
        cores=row.get("cores"),
        nodes=nodes,
        requeues=int(row["requeues"]),
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    return str(row[name] or "")


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
