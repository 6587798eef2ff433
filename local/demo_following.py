"""How `fluxqueue local demo` follows the examples until they settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.announced_starts import StartExpectations
from fluxqueue.local.demo_client import DemoClient, explain, show
from fluxqueue.local.for_people import FIRST_NAMESPACE
from fluxqueue.local.screen import Screen
from fluxqueue.local.verdicts import (
    AppliedExample,
    Row,
    rows_of,
    settled,
)

__all__ = ["POLL_S", "follow"]

POLL_S = 0.4


def follow(
    client: DemoClient,
    screen: Screen,
    examples: Sequence[AppliedExample],
    expectations: StartExpectations,
    timeout_s: float,
) -> list[Row]:
    """Follow the examples until they settle or the time is over;
    show the queue once, when a start is announced.
    """
    deadline = time.monotonic() + timeout_s

    def enough(rows: Sequence[Row]) -> bool:
        expectations.record(rows)
        return settled(rows) or _waiting_with_reservation(rows) is not None

    rows = _watch(client, screen, examples, enough, deadline)
    if (all_waiting := _waiting_with_reservation(rows)) is not None:
        show(client, screen, "jobs", "-n", FIRST_NAMESPACE)
        for waiting in all_waiting:
            explain(client, screen, waiting)
        screen.step("Until everything has settled")
        rows = _watch(client, screen, examples, settled, deadline)
    return rows


def _watch(
    client: DemoClient,
    screen: Screen,
    examples: Sequence[AppliedExample],
    enough: Callable[[Sequence[Row]], bool],
    deadline: float,
) -> list[Row]:
    from rich.live import Live

    rows = rows_of(examples, client.look())
    with (
        Live(screen.table(rows), console=screen.console, refresh_per_second=4, transient=True)
        if screen.live
        else nullcontext() as live
    ):
        while True:
            if live is None:
                screen.changes(rows)
            else:
                live.update(screen.table(rows))
            if enough(rows) or time.monotonic() > deadline:
                return rows
            time.sleep(POLL_S)
            rows = rows_of(examples, client.look())


def _waiting_with_reservation(rows: Sequence[Row]) -> list[Row] | None:
    """Return the waiting workloads, those with a reservation first; None if none has one yet."""
    waiting = [
        row
        for row in rows
        if row.fluxjob
        and row.state == State.PENDING
        and row.fluxjob.status.reason
        and not row.example.expects
    ]
    reserved = [
        row for row in waiting if row.example.reserved and row.fluxjob and row.fluxjob.status.reserved_at
    ]
    return [*reserved, *(row for row in waiting if row not in reserved)] if reserved else None
