"""What the accounting answers to people, on real tables:
pages, filters, sums, and questions that take too long.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from support.queue_records import Leader, a_requeue

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.accounting_queries import InvalidQuery, read_history_query, read_report_query
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store
from fluxqueue.queue.store import accounting as accounting_module
from fluxqueue.queue.store.accounting import Accounting, TakesTooLong
from fluxqueue.queue.store.queries import QUERIES
from fluxqueue.queue.store.transactions import Statement

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def accounting(pool: Database) -> Accounting:
    return Accounting(pool)


@pytest.fixture
async def records(database: str) -> None:
    """Ten ends in a namespace, one each hour before `NOW`, and an allocation of two nodes over midnight."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        for month in ("2026_10", "2026_11"):
            first = datetime(2026, int(month[-2:]), 1, tzinfo=UTC)
            for table in ("ended_workload", "ended_allocation"):
                await connection.execute(f"DROP TABLE IF EXISTS fluxqueue.{table}_{month}".encode())
                await connection.execute(
                    (
                        f"CREATE TABLE fluxqueue.{table}_{month} PARTITION OF fluxqueue.{table} "
                        f"FOR VALUES FROM ('{first:%Y-%m-%d}Z') TO "
                        f"('{first.replace(month=first.month + 1):%Y-%m-%d}Z')"
                    ).encode()
                )
        for number in range(10):
            await connection.execute(
                "INSERT INTO fluxqueue.ended_workload (id, uid, api_version, kind, namespace, name, "
                "queue, priority, pods, duration_s,"
                " duration_assumed, state, outcome, message, submitted_at, allocated_at, started_at, "
                "finished_at, requeues, jobid, hosts,"
                " account, submitted_by) VALUES (%s, %s, 'batch/v1', 'Job', %s, %s, 'default', 0, 2, 600, "
                "false, %s, '', '', %s, %s, %s,"
                " %s, 0, 1, %s, 'physics', %s)",
                (
                    1_000_000 + number,
                    f"uid-{number}",
                    "science" if number % 2 else "art",
                    f"job-{number}",
                    "Failed" if number == 3 else "Completed",
                    NOW - 2 * DAY,
                    NOW - 2 * DAY + timedelta(minutes=1),
                    NOW - 2 * DAY + timedelta(minutes=2),
                    NOW - timedelta(hours=number + 1),
                    "node-1" if number else "n" * 2_001,
                    "alice" if number < 5 else "bob",
                ),
            )
        await connection.execute(
            "INSERT INTO fluxqueue.ended_allocation VALUES (7, 1000001, 'science', 'default', %s, %s, %s, 2,"
            " '{\"cpu\": 4000, \"memory\": 2048, \"nvidia.com:gpu\": 3}', 'physics', 'alice')",
            (datetime(2026, 11, 21, 23, tzinfo=UTC), None, datetime(2026, 11, 22, 1, tzinfo=UTC)),
        )


async def names(accounting: Accounting, **parameters: str) -> list[str]:
    page = await accounting.jobs(read_history_query(parameters.items(), NOW), NOW)
    return [job["name"] for job in page.jobs]


async def test_pages_have_each_row_once_and_the_newest_first(accounting: Accounting, records: None) -> None:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await accounting.jobs(read_history_query([("limit", "3"), *cursor.items()], NOW), NOW)
        assert 1 <= len(page.jobs) <= 3
        found += [job["name"] for job in page.jobs]
        if page.after is None:
            break
        cursor = {"cursor": str(page.after)}
    assert found == [f"job-{number}" for number in range(10)]


async def test_filters_select_by_all_that_is_named(accounting: Accounting, records: None) -> None:
    assert await names(accounting, namespace="science") == ["job-1", "job-3", "job-5", "job-7", "job-9"]
    assert await names(accounting, user="bob", namespace="art") == ["job-6", "job-8"]
    assert await names(accounting, state="failed") == ["job-3"]
    assert await names(accounting, since="9000s") == ["job-0", "job-1"]
    assert await names(accounting, account="") == await names(accounting, queue="gpu") == []
    assert await names(accounting, until="8h", since="10h") == ["job-8", "job-9"]
    assert (
        await names(accounting, name="job-9")
        == await names(accounting, name="job-9", kind="Job")
        == ["job-9"]
    )
    assert await names(accounting, name="job-9", kind="pod") == await names(accounting, name="job") == []


async def test_a_row_has_waits_and_runs_and_no_endless_lists(accounting: Accounting, records: None) -> None:
    (job,) = (await accounting.jobs(read_history_query([("limit", "1")], NOW), NOW)).jobs
    assert (job["name"], job["user"], job["wait_s"], job["run_s"]) == (
        "job-0",
        "alice",
        120.0,
        2 * 86_400 - 3_600 - 120,
    )
    assert job["hosts"] == "", "longer than a page should carry"


async def test_work_that_runs_comes_first_and_ends_now(
    store: Store, epoch: Epoch, accounting: Accounting, records: None
) -> None:
    leader = Leader(store, epoch)
    await leader.allocate("live", submitted_by="carol")
    (waiting,) = await leader.submit("ended-later")
    now = max(datetime.now(UTC), NOW)
    page = await accounting.jobs(read_history_query([("since", "3000d")], now), now)
    assert [job["name"] for job in page.jobs][:2] == ["ended-later", "live"]
    assert (await accounting.jobs(read_history_query([("since", "3000d"), ("until", "1m")], now), now)).jobs[
        0
    ]["name"] == "job-0"
    assert [
        job["name"] for job in (await accounting.jobs(read_history_query([("name", "live")], now), now)).jobs
    ] == ["live"]
    first = await accounting.jobs(read_history_query([("since", "3000d"), ("limit", "1")], now), now)
    await store.finish(epoch, [Ending(waiting.id, State.CANCELLED, Outcome.CANCELLED, "")])
    second = await accounting.jobs(
        read_history_query([("since", "3000d"), ("limit", "1"), ("cursor", str(first.after))], now), now
    )
    assert second.jobs[0]["name"] == "live"
    (use,) = [
        row
        for row in await accounting.report(read_report_query([("by", "user")], now), now)
        if row["user"] == "carol"
    ]
    assert (use["jobs"], use["node_s"] >= 0) == (1, True)


async def test_work_that_ended_while_it_waited_again_has_its_last_run(
    store: Store, epoch: Epoch, accounting: Accounting, database: str
) -> None:
    """As a preempted group whose pods nobody creates again.
    What never had nodes, or lost them before its release, has no run.
    """
    leader = Leader(store, epoch)
    (ran,) = await leader.allocate("ran", hosts=("node-7", "node-7", "node-8"))
    (unreleased,) = await leader.allocate("unreleased")
    (waited,) = await leader.submit("waited")
    (again,) = await leader.allocate("again")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "UPDATE fluxqueue.allocation SET granted_at = granted_at - interval '99 s', "
            "released_at = granted_at - interval '90 s',"
            " next_release_at = NULL WHERE workload = ANY (%s)",
            ([ran.id, again.id],),
        )
        await connection.execute(
            "UPDATE fluxqueue.workload SET submitted_at = submitted_at - interval '100 s' WHERE id = ANY "
            "(%s)",
            ([ran.id, again.id, waited.id],),
        )
    await store.requeue(epoch, [a_requeue(each.id) for each in (ran, unreleased, again)])
    await store.finish(
        epoch, [Ending(each.id, State.CANCELLED, Outcome.CANCELLED, "") for each in (ran, unreleased, waited)]
    )
    now = datetime.now(UTC) + timedelta(minutes=1)
    found = {
        job["name"]: job
        for job in (await accounting.jobs(read_history_query([("since", "1h")], now), now)).jobs
    }
    assert 90 <= found["ran"]["run_s"] < 120
    assert (found["ran"]["hosts"], found["ran"]["cores"]) == ("node-7,node-8", 4)
    assert found["ran"]["wait_s"] < found["waited"]["wait_s"], "it waited until its last run"
    for name in ("unreleased", "waited", "again"):
        assert (found[name]["run_s"], found[name]["hosts"]) == (None, ""), name


async def test_a_run_counts_for_the_submission_that_it_was_of(
    store: Store, epoch: Epoch, accounting: Accounting, database: str
) -> None:
    """Work that ran, was requeued and cancelled, and then resumed and cancelled as it waited, ran once."""
    leader = Leader(store, epoch)
    (ran,) = await leader.allocate("ran")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "UPDATE fluxqueue.workload SET submitted_at = submitted_at - interval '100 s'"
        )
        await connection.execute(
            "UPDATE fluxqueue.allocation SET granted_at = granted_at - interval '99 s', "
            "released_at = granted_at - interval '90 s',"
            " next_release_at = NULL"
        )
    await store.requeue(epoch, [a_requeue(ran.id)])
    await store.finish(epoch, [Ending(ran.id, State.CANCELLED, Outcome.CANCELLED, "")])
    await store.resubmit(epoch, [ran.uid])
    await store.finish(epoch, [Ending(ran.id, State.CANCELLED, Outcome.CANCELLED, "")])
    now = datetime.now(UTC) + timedelta(minutes=1)
    jobs = (await accounting.jobs(read_history_query([("since", "1h")], now), now)).jobs
    assert [job["run_s"] is not None for job in sorted(jobs, key=lambda job: str(job["submitted_at"]))] == [
        True,
        False,
    ]
    assert all(job["wait_s"] >= 0 for job in jobs)


async def test_a_report_counts_what_lies_between_its_times(accounting: Accounting, records: None) -> None:
    (use,) = await accounting.report(read_report_query([("by", "namespace,account,user")], NOW), NOW)
    assert use == {
        "namespace": "science",
        "account": "physics",
        "user": "alice",
        "jobs": 1,
        "node_s": 2 * 7_200.0,
        "cpu_s": 4 * 7_200.0,
        "memory_gib_s": 2 * 7_200.0,
        "gpu_s": 3 * 7_200.0,
        "estimated": 0,
        "start_error_s": None,
    }
    by_day = await accounting.report(
        read_report_query([("by", "day"), ("since", "2026-11-21T23:30:00Z")], NOW), NOW
    )
    assert [(row["day"], row["node_s"]) for row in by_day] == [
        ("2026-11-21", 3_600.0),
        ("2026-11-22", 7_200.0),
    ]
    assert await accounting.report(read_report_query([("since", "2026-11-22T01:00:00Z")], NOW), NOW) == []
    assert await accounting.report(read_report_query([("user", "bob")], NOW), NOW) == []


async def test_costs_follow_the_rates_of_their_time_and_parts_add_up(
    database: str, pool: Database, accounting: Accounting, records: None
) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "UPDATE fluxqueue.ended_allocation SET rates = "
            """'[{"since": "-infinity", "per_hour": "1.1"}, """
            """{"since": "2026-11-22T00:30:00Z", "per_hour": "2.5"}]'"""
        )
    priced = Accounting(pool, "EUR")

    async def costs(**parameters: str) -> list[Decimal]:
        rows = await priced.report(read_report_query(parameters.items(), NOW), NOW)
        return [Decimal(row["cost"]) for row in rows]

    assert await costs() == [Decimal("2.9")], "an hour and a half at 1.1, half an hour at 2.5"
    assert await costs(by="day") == [Decimal("1.1"), Decimal("1.8")]
    assert await costs(until="2026-11-22T00:30:00Z") == [Decimal("1.65")]
    assert await costs(since="2026-11-22T00:15:00Z", until="2026-11-22T00:45:00Z") == [Decimal("0.9")]
    chance = random.Random(3)
    first = datetime(2026, 11, 21, 22, tzinfo=UTC)
    for _ in range(5):
        cuts = sorted(chance.sample(range(1, 4 * 3_600_000_000 - 1), 3))
        times = [first + timedelta(microseconds=cut) for cut in (0, *cuts, 4 * 3_600_000_000)]
        parts = [
            cost
            for since, until in pairwise(times)
            for cost in await costs(since=since.isoformat(), until=until.isoformat())
        ]
        assert sum(parts) == pytest.approx(Decimal("2.9"), abs=Decimal("1e-12"))
    page = await priced.jobs(read_history_query([], NOW), NOW)
    assert {job["name"]: job["cost"] for job in page.jobs if job["cost"] is not None} == {"job-1": "2.9"}
    page = await accounting.jobs(read_history_query([], NOW), NOW)
    assert not any("cost" in job for job in page.jobs), "without prices"
    (use,) = await accounting.report(read_report_query([], NOW), NOW)
    assert "cost" not in use


async def test_a_report_says_how_far_first_estimates_were_off(
    store: Store, epoch: Epoch, accounting: Accounting, records: None
) -> None:
    leader, now = Leader(store, epoch), await store.now()
    for name, estimate in (
        ("late", now - timedelta(minutes=1)),
        ("early", now + timedelta(minutes=3)),
        ("without", None),
    ):
        (row,) = await leader.submit(name, submitted_by="carol")
        await store.grant(epoch, [replace(await leader.grant_for(row), promised_at=estimate)])
    now = await store.now() + timedelta(seconds=1)
    for by in ("user", "user,day"):
        (use,) = await accounting.report(read_report_query([("by", by), ("user", "carol")], now), now)
        assert (use["jobs"], use["estimated"]) == (3, 2)
        assert use["start_error_s"] == pytest.approx(120, abs=5)
    page = await accounting.jobs(read_history_query([("user", "carol")], now), now)
    assert [job["cores"] for job in page.jobs] == [4, 4, 4], "two nodes of which each gave two cores"
    assert [job["start_error_s"] and round(job["start_error_s"], -1) for job in page.jobs] == [None, -180, 60]


async def test_a_report_of_too_many_rows_is_refused(
    accounting: Accounting, records: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting_module, "MOST_ROWS", 1)
    with pytest.raises(InvalidQuery, match="more than 1 rows: name a shorter time, or fewer groups"):
        await accounting.report(read_report_query([("by", "day")], NOW), NOW)


async def test_a_question_that_takes_too_long_is_ended(
    accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUERIES, "accounting_jobs", b"SELECT pg_sleep(60)")
    monkeypatch.setattr(accounting_module, "_HISTORY_S", 1)
    with pytest.raises(TakesTooLong, match="longer than 1 s: name a namespace, or a shorter time"):
        await accounting.jobs(read_history_query([], NOW), NOW)


async def test_a_reading_transaction_cannot_write(accounting: Accounting) -> None:
    with pytest.raises(DatabaseUnavailable, match="read-only transaction"):
        await accounting._transaction(
            Statement("read_only", {"timeout": "5s"}), Statement("prune_history", {"ids": []})
        )


async def test_the_next_transaction_of_the_connection_may_write_again(database: str, epoch: Epoch) -> None:
    async with Database(database, size=1) as one:
        await Accounting(one).jobs(read_history_query([], NOW), NOW)
        found: Any = await Store(one).acquire_leadership("replica-1")
        assert found > epoch
