"""When traces are exported, and what happens where they cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.traces import EndedWorkload
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.traces import NotExported, TraceExport, TracesUnavailable, make_sender

NOW = EPOCH + timedelta(hours=1)


def ended(number: int, seconds: float = 0) -> EndedWorkload:
    workload = a_workload(
        f"w{number}",
        id=WorkloadId(number),
        state=State.COMPLETED,
        finished_at=NOW + timedelta(seconds=seconds),
    )
    return EndedWorkload(workload=workload, transitions=(), releases=())


class Table:
    """What has ended, as the store returns it; an error of the list is raised once."""

    def __init__(self, *rows: EndedWorkload) -> None:
        self.rows = list(rows)
        self.errors: list[Exception] = []
        self.asked: list[tuple[datetime, WorkloadId]] = []

    async def ended_after(
        self, at: datetime, after: WorkloadId, *, settled_s: float, limit: int
    ) -> list[EndedWorkload]:
        assert settled_s == 0.5
        self.asked.append((at, after))
        if self.errors:
            raise self.errors.pop()
        later = [row for row in self.rows if (row.workload.finished_at, row.workload.id) > (at, after)]
        return later[:limit]


class Collector:
    """Takes what is sent; an error of the list is raised once."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.errors: list[Exception] = []
        self.closed = False

    def send(self, ended: Sequence[EndedWorkload]) -> None:
        if self.errors:
            raise self.errors.pop()
        self.taken += [each.workload.id for each in ended]

    def close(self) -> None:
        self.closed = True


async def run_until(table: Table, collector: Collector, done: Callable[[], bool]) -> None:
    running = asyncio.create_task(TraceExport(table, collector, NOW, interval_s=0.001, settled_s=0.5).run())
    try:
        async with asyncio.timeout(60):
            while not done() and not running.done():
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_every_end_is_sent_once_also_of_many_at_one_time() -> None:
    table, collector = Table(*(ended(number) for number in range(1, 251))), Collector()
    await run_until(table, collector, lambda: len(collector.taken) >= 250 and len(table.asked) >= 6)
    assert collector.taken == list(range(1, 251))
    assert collector.closed


async def test_a_new_leader_begins_a_minute_before_its_start() -> None:
    table, collector = Table(ended(1, -59), ended(2, -61)), Collector()
    await run_until(table, collector, lambda: len(table.asked) >= 2)
    assert collector.taken == [1]
    assert table.asked[0] == (NOW - timedelta(seconds=60), 0)


async def test_what_the_collector_did_not_take_is_sent_again() -> None:
    table, collector = Table(ended(1), ended(2)), Collector()
    collector.errors = [NotExported("it is away"), NotExported("it is away")]
    await run_until(table, collector, lambda: len(collector.taken) >= 2)
    assert collector.taken == [1, 2]


async def test_an_outage_of_the_database_is_waited_for() -> None:
    table, collector = Table(ended(1)), Collector()
    table.errors = [DatabaseUnavailable("gone")]
    await run_until(table, collector, lambda: bool(collector.taken))
    assert collector.taken == [1]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_traces_are_exported_where_a_collector_is_named(environment: dict[str, str], wanted: bool) -> None:
    sender = make_sender(environment)
    assert (sender is not None) is wanted
    if sender is not None:
        sender.close()


def test_a_collector_without_the_packages_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fluxqueue.queue.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        TracesUnavailable,
        match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set, .* install fluxqueue\[traces\], or unset it",
    ):
        make_sender({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"})
