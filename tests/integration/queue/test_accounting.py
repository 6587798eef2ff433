"""What is kept of ended work after its rows are pruned, and the views of it, on real tables."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from support.queue_records import Leader, a_requeue

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.config import AccountingConfig
from fluxqueue.queue.model.changes import Ending, Eviction, Replacement
from fluxqueue.queue.model.prices import Rate
from fluxqueue.queue.model.records import Epoch, Reservation, Workload
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.store import StaleLeader, Store
from fluxqueue.queue.store.ledger import Ledger

DAY = timedelta(days=1)
DOCS = Path(__file__).parents[3] / "docs"
Connection = psycopg.AsyncConnection[dict[str, Any]]


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    async with await psycopg.AsyncConnection.connect(
        database, autocommit=True, row_factory=dict_row
    ) as opened:
        # a reader's zone, in which days and months begin at another time
        await opened.execute("SET timezone = 'Asia/Tokyo'")
        yield opened


async def rows(connection: Connection, query: str, *parameters: Any) -> list[dict[str, Any]]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()


async def prune(leader: Leader, *, exists: bool = False, accounting: AccountingConfig | None = None) -> None:
    """Prune as a sweep a day and a second later does."""
    ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC) + DAY + timedelta(seconds=1))
    pruner = Pruner(
        ledger,
        lambda _uid: exists,
        retention_s=DAY.total_seconds(),
        accounting=accounting or AccountingConfig(),
    )
    await pruner.prune()


async def finish(
    leader: Leader, workload: Workload, state: State = State.COMPLETED, outcome: Outcome = Outcome.SUCCEEDED
) -> None:
    await leader.store.finish(leader.epoch, [Ending(workload.id, state, outcome, "as it should be")])


async def run_twice(leader: Leader, name: str) -> Workload:
    """Run a workload of the account physics that is preempted once, and then ends."""
    (workload,) = await leader.allocate(name, account="physics")
    await leader.store.mark_started(leader.epoch, [workload.id])
    await leader.store.evict(
        leader.epoch, [Eviction(workload=workload.id, reason=Reason.PREEMPTED, message="by science/urgent")]
    )
    await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
    (waiting,) = await leader.store.workloads([workload.id])
    await leader.store.grant(leader.epoch, [await leader.grant_for(waiting, ["node-3"])])
    await leader.store.mark_started(leader.epoch, [workload.id])
    await finish(leader, workload)
    return (await leader.store.workloads([workload.id]))[0]


_VIEWS = (
    "jobs",
    "allocations",
    "use_by_day",
    "waits",
    "efficiency",
    "evictions",
    "preemptions",
    "estimate_errors",
)


async def test_the_views_show_the_same_before_and_after_the_rows_are_pruned(
    leader: Leader, connection: Connection
) -> None:
    await run_twice(leader, "lammps")
    (cancelled,) = await leader.submit("never-started")
    await finish(leader, cancelled, State.CANCELLED, Outcome.CANCELLED)
    before = {view: await rows(connection, f"SELECT * FROM fluxqueue.{view} ORDER BY 1") for view in _VIEWS}
    assert [view for view, found in before.items() if not found] == []
    await prune(leader)
    assert (
        await rows(
            connection, "SELECT id FROM fluxqueue.workload UNION ALL SELECT jobid FROM fluxqueue.allocation"
        )
        == []
    )
    assert {
        view: await rows(connection, f"SELECT * FROM fluxqueue.{view} ORDER BY 1") for view in _VIEWS
    } == before


async def test_the_account_of_ended_work_is_recorded(leader: Leader, connection: Connection) -> None:
    await run_twice(leader, "lammps")
    (cancelled,) = await leader.submit("resumed", account="biology")
    await finish(leader, cancelled, State.CANCELLED, Outcome.CANCELLED)
    await prune(leader, exists=True)
    await leader.store.resubmit(leader.epoch, [cancelled.uid])
    found = await rows(connection, "SELECT name, account, resumed FROM fluxqueue.jobs ORDER BY id, resumed")
    assert [tuple(each.values()) for each in found] == [
        ("lammps", "physics", False),
        ("resumed", "biology", False),
        ("resumed", "biology", True),
    ]


async def test_the_rates_of_a_grant_are_kept_and_cost_so_far_becomes_cost(
    leader: Leader, connection: Connection
) -> None:
    """An allocation is priced once, by what is stored with its grant."""
    (workload, free) = await leader.submit("priced", "free")
    rates = (Rate(None, Decimal(3600)), Rate(datetime(2999, 1, 1, tzinfo=UTC), Decimal("7.5")))
    grants = [replace(await leader.grant_for(workload), rates=rates), await leader.grant_for(free)]
    await leader.store.grant(leader.epoch, grants)

    async def costs() -> list[Decimal | None]:
        found = await rows(connection, "SELECT cost FROM fluxqueue.allocations ORDER BY jobid")
        return [each["cost"] for each in found]

    so_far = await costs()
    assert so_far[1] is None
    await finish(leader, workload)
    await finish(leader, free)
    cost = await costs()
    (times,) = await rows(
        connection,
        "SELECT EXTRACT(epoch FROM freed_at - granted_at) AS s, rates FROM fluxqueue.allocations "
        "WHERE rates IS NOT NULL",
    )
    assert so_far[0] is not None
    assert cost[0] is not None
    assert 0 < so_far[0] <= cost[0] + Decimal("0.1")
    assert cost == [times["s"], None], "a second costs 1"
    assert times["rates"] == [
        {"since": "-infinity", "per_hour": "3600"},
        {"since": "2999-01-01T00:00:00+00:00", "per_hour": "7.5"},
    ]
    await prune(leader)
    assert await costs() == cost


async def test_rates_that_never_came_to_count_are_not_recorded(
    leader: Leader, connection: Connection
) -> None:
    """A list of prices to come would be computed with, and stored, for all that ended before."""
    (changed,) = await leader.submit("changed")
    rates = [Rate(None, Decimal(1)), *(Rate(datetime(n, 1, 1, tzinfo=UTC), Decimal(n)) for n in (2000, 2999))]
    grant = replace(await leader.grant_for(changed), rates=tuple(rates))
    await leader.store.grant(leader.epoch, [grant])
    await finish(leader, changed)
    (before,) = await rows(connection, "SELECT cost FROM fluxqueue.allocations")
    await prune(leader)
    (after,) = await rows(connection, "SELECT cost, rates FROM fluxqueue.allocations")
    assert after["cost"] == before["cost"] > 0
    assert [each["per_hour"] for each in after["rates"]] == ["1", "2000"]


async def test_work_that_others_replaced_is_charged_for_its_time(
    leader: Leader, connection: Connection
) -> None:
    """A replaced pod of a Deployment passes its nodes on: its own time, and what it cost, stay with it."""
    former, following = await leader.submit("former", "following", account="physics")
    rates = (Rate(None, Decimal(3600)), Rate(datetime(2999, 1, 1, tzinfo=UTC), Decimal(1)))
    grant = replace(await leader.grant_for(former), rates=rates)
    await leader.store.grant(leader.epoch, [grant])
    await connection.execute("UPDATE fluxqueue.allocation SET granted_at = granted_at - interval '99 s'")
    change = Replacement(
        replaced=former.id,
        replacement=following.id,
        state=State.COMPLETED,
        outcome=Outcome.SUCCEEDED,
        message="its pod is gone",
    )
    await leader.store.replace(leader.epoch, [change])
    await leader.store.replace(leader.epoch, [change])
    held = (
        "SELECT workload, account, nodes, granted_at, freed_at, cost, jsonb_array_length(rates) AS n "
        "FROM fluxqueue.allocations ORDER BY 1"
    )
    first, second = await rows(connection, held)
    assert (first["workload"], second["workload"]) == (former.id, following.id)
    assert (first["account"], first["nodes"]) == (second["account"], second["nodes"]) == ("physics", 2)
    assert (first["freed_at"], first["n"]) == (second["granted_at"], 1)
    assert float(first["cost"]) == (first["freed_at"] - first["granted_at"]).total_seconds() >= 99
    await finish(leader, following)
    before = await rows(connection, held)
    await prune(leader)
    assert await rows(connection, held) == before


async def test_an_allocation_is_charged_from_its_grant_to_its_end(
    leader: Leader, connection: Connection
) -> None:
    workload = await run_twice(leader, "lammps")
    await prune(leader)
    former, last = await rows(connection, "SELECT * FROM fluxqueue.allocations ORDER BY jobid")
    assert (former["nodes"], former["amounts"]) == (2, {"cpu": 4000, "memory": 8})
    assert (last["jobid"], last["nodes"], last["amounts"]) == (workload.jobid, 1, {"cpu": 2000, "memory": 4})
    seconds = [(each["freed_at"] - each["granted_at"]).total_seconds() for each in (former, last)]
    (use,) = await rows(
        connection,
        "SELECT namespace, queue, account, sum(node_s) AS node_s, sum(cpu_s) AS cpu_s FROM "
        "fluxqueue.use_by_day GROUP BY 1, 2, 3",
    )
    assert (use["namespace"], use["queue"], use["account"]) == ("science", "default", "physics")
    assert use["node_s"] == pytest.approx(2 * seconds[0] + seconds[1])
    assert use["cpu_s"] == pytest.approx(4 * seconds[0] + 2 * seconds[1])
    (lost,) = await rows(connection, "SELECT message, lost_nodes, lost_node_s FROM fluxqueue.preemptions")
    assert (lost["message"], lost["lost_nodes"]) == ("by science/urgent", 2)
    assert lost["lost_node_s"] == pytest.approx(2 * seconds[0])


async def test_use_is_split_at_midnight_utc(connection: Connection) -> None:
    await connection.execute(
        "SELECT fluxqueue.make_months();"
        "INSERT INTO fluxqueue.ended_allocation (jobid, workload, namespace, queue, granted_at, "
        "freed_at, nodes, amounts)"
        " SELECT 1, 1, 'science', 'default', day - interval '30 hours', day + interval '2 hours', 3,"
        '        \'{"cpu": 500, "nvidia.com:gpu": 4}\''
        "  FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS day) AS first"
    )
    found = await rows(
        connection,
        "SELECT node_s / 3600 AS node_h, cpu_s / 3600 AS cpu_h, gpu_s / 3600 AS gpu_h FROM "
        "fluxqueue.use_by_day ORDER BY day",
    )
    assert [(each["node_h"], each["cpu_h"], each["gpu_h"]) for each in found] == [
        (18, 3, 24),
        (72, 12, 96),
        (6, 1, 8),
    ]


async def test_a_workload_that_waits_or_runs_is_in_the_views_too(
    leader: Leader, connection: Connection
) -> None:
    await leader.submit("waits")
    await leader.allocate("runs")
    found = await rows(connection, "SELECT name, state FROM fluxqueue.jobs ORDER BY id")
    assert [(each["name"], each["state"]) for each in found] == [("waits", "Pending"), ("runs", "Allocated")]
    (use,) = await rows(
        connection, "SELECT sum(node_s) AS node_s, max(jobs) AS jobs FROM fluxqueue.use_by_day"
    )
    assert use["node_s"] > 0
    assert use["jobs"] == 1
    assert [each["wait_s"] > 0 for each in await rows(connection, "SELECT wait_s FROM fluxqueue.waits")] == [
        True,
        True,
    ]


async def test_the_first_promised_start_is_kept_when_the_reservation_goes(
    leader: Leader, connection: Connection
) -> None:
    (waiting,) = await leader.submit("promised")
    (jobid,) = await leader.store.next_jobids(1)
    first = await leader.store.now() + timedelta(hours=1)
    for start in (first, first + timedelta(hours=2)):
        made = Reservation(
            workload=waiting.id, jobid=jobid, first_start=start, start=start, end=None, shares=()
        )
        await leader.store.reserve(leader.epoch, [made], [])
    await leader.store.grant(leader.epoch, [await leader.grant_for(waiting)])
    await finish(leader, waiting)
    await prune(leader)
    (found,) = await rows(
        connection, "SELECT promised_at, allocated_at, start_error_s FROM fluxqueue.estimate_errors"
    )
    assert found["promised_at"] == first
    assert found["start_error_s"] == pytest.approx((found["allocated_at"] - first).total_seconds())


@pytest.mark.parametrize("pruned", [False, True], ids=["within the retention", "after it"])
async def test_a_cancelled_job_that_is_resumed_has_a_record_of_each_end(
    leader: Leader, connection: Connection, *, pruned: bool
) -> None:
    (workload,) = await leader.submit("resumed")
    await finish(leader, workload, State.CANCELLED, Outcome.CANCELLED)
    if pruned:
        await prune(leader, exists=True)
    for _ in range(2):  # a repeated resumption records nothing more
        await leader.store.resubmit(leader.epoch, [workload.uid])
    (again,) = await leader.store.pending()
    await leader.store.grant(leader.epoch, [await leader.grant_for(again)])
    await finish(leader, again)
    await prune(leader)
    found = await rows(connection, "SELECT id, outcome, resumed FROM fluxqueue.jobs ORDER BY finished_at")
    assert [(each["id"], each["outcome"], each["resumed"]) for each in found] == [
        (workload.id, "Cancelled", True),
        (workload.id, "Succeeded", False),
    ]


async def test_a_leader_that_was_replaced_leaves_neither_a_gap_nor_a_second_record(
    leader: Leader, connection: Connection
) -> None:
    ended = await leader.allocate(*(f"job-{number}" for number in range(40)))
    for workload in ended:
        await finish(leader, workload)
    before = await leader.store.now() + timedelta(seconds=1)
    await leader.store.prune_allocations(leader.epoch, before, allocations=15)
    await leader.store.prune_allocations(leader.epoch, before, allocations=15)
    assert await leader.store.forget(leader.epoch, before, 7) == 7
    successor = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
    with pytest.raises(StaleLeader):
        await leader.store.forget(leader.epoch, before)
    both = await asyncio.gather(prune(successor), prune(successor), return_exceptions=True)
    assert [each for each in both if each is not None] == []
    assert [
        each["n"] for each in await rows(connection, "SELECT count(*) AS n FROM fluxqueue.ended_allocation")
    ] == [40]
    (records,) = await rows(
        connection, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM fluxqueue.ended_workload"
    )
    assert (records["n"], records["ids"]) == (40, 40)


async def test_rows_that_a_restored_backup_brings_back_are_recorded_once(
    leader: Leader, connection: Connection
) -> None:
    (workload,) = await leader.allocate("lammps")
    await finish(leader, workload)
    await connection.execute(
        "CREATE TABLE public.w AS TABLE fluxqueue.workload; "
        "CREATE TABLE public.a AS TABLE fluxqueue.allocation"
    )
    await prune(leader)
    await connection.execute(
        "INSERT INTO fluxqueue.workload SELECT * FROM public.w; "
        "INSERT INTO fluxqueue.allocation SELECT * FROM public.a"
    )
    await prune(leader)
    assert len(await rows(connection, "SELECT id FROM fluxqueue.jobs")) == 1
    assert len(await rows(connection, "SELECT jobid FROM fluxqueue.allocations")) == 1


# ---- months ------------------------------------------------------------------------------------------------


async def _old_job(connection: Connection, months: int) -> None:
    """Insert a job that ended in the middle of a month so many months ago."""
    await connection.execute(
        "INSERT INTO fluxqueue.workload (uid, api_version, kind, namespace, name, queue, priority, jobspec, "
        "shape, pods, duration_assumed,"
        " release_mode, generation, state, reason, message, found_reason, found_message, "
        "submitted_at, finished_at, outcome)"
        " SELECT 'old-' || %(months)s, 'batch/v1', 'Job', 'science', 'old-' || %(months)s, 'default', "
        "0, '', '', 1, false, 'pin', 1,"
        " 'Completed', '', '', '', '', at, at, 'Succeeded'"
        "  FROM (SELECT date_trunc('month', now()) - make_interval(months => %(months)s) + interval '14 "
        "days' AS at) AS t",
        {"months": months},
    )


async def _names(connection: Connection) -> list[str]:
    return [
        each["name"]
        for each in await rows(connection, "SELECT name FROM fluxqueue.jobs ORDER BY finished_at")
    ]


async def _tables(connection: Connection) -> list[str]:
    found = await rows(
        connection,
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ended_workload_%%' ORDER BY "
        "relname",
    )
    return [each["relname"] for each in found]


async def test_months_older_than_those_to_keep_are_dropped(leader: Leader, connection: Connection) -> None:
    for months in (5, 3, 2, 1):
        await _old_job(connection, months)
    await prune(leader)
    assert await _names(connection) == ["old-5", "old-3", "old-2", "old-1"]
    await prune(leader, accounting=AccountingConfig(months=2))
    assert await _names(connection) == ["old-2", "old-1"]
    assert len(await _tables(connection)) == 4  # two before, the present one, the next one


async def test_a_detached_month_remains_as_a_table_and_its_time_can_come_again(
    leader: Leader, connection: Connection
) -> None:
    keep_one = AccountingConfig(months=1, expired="detach")
    await _old_job(connection, 3)
    await prune(leader, accounting=keep_one)
    assert await _names(connection) == []
    await _old_job(connection, 4)
    await prune(leader, accounting=keep_one)
    kept = [table for table in await _tables(connection) if "_detached_" in table]
    names = [
        each["name"]
        for table in kept
        for each in await rows(connection, f"SELECT name FROM fluxqueue.{table}")
    ]
    assert sorted(names) == ["old-3", "old-4"]


async def test_a_busy_month_is_left_for_the_next_sweep(
    leader: Leader, connection: Connection, database: str
) -> None:
    await _old_job(connection, 3)
    await prune(leader)
    async with await psycopg.AsyncConnection.connect(database) as reader:
        await reader.execute("SELECT * FROM fluxqueue.jobs")
        await prune(leader, accounting=AccountingConfig(months=1))
    assert await _names(connection) == ["old-3"]
    await prune(leader, accounting=AccountingConfig(months=1))
    assert await _names(connection) == []


async def test_a_month_is_made_while_a_reader_holds_the_records(
    leader: Leader, connection: Connection, database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database) as reader:
        await reader.execute("SELECT * FROM fluxqueue.jobs")
        await _old_job(connection, 2)
        await prune(leader)
    assert await _names(connection) == ["old-2"]


# ---- who reads, and what the page says ---------------------------------------------------------------------


async def test_a_role_with_rights_on_the_views_reads_them_and_nothing_else(connection: Connection) -> None:
    role = f"accounting_reader_{os.getpid()}"
    await connection.execute(f"CREATE ROLE {role}".encode())
    try:
        grants = re.findall(r"^GRANT .*?;$", (DOCS / "accounting.md").read_text(), re.MULTILINE | re.DOTALL)
        assert grants
        for grant in grants:
            await connection.execute(grant.replace("fluxqueue_reader", role).encode())
        await connection.execute(f"SET ROLE {role}".encode())
        for view in _VIEWS:
            await rows(connection, f"SELECT * FROM fluxqueue.{view}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await rows(connection, "SELECT * FROM fluxqueue.workload")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute("DELETE FROM fluxqueue.ended_workload")
    finally:
        await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_the_page_has_the_columns_of_every_view(connection: Connection) -> None:
    found = await rows(
        connection,
        "SELECT v.table_name, c.column_name, c.data_type FROM information_schema.views v JOIN "
        "information_schema.columns c"
        " USING (table_schema, table_name) WHERE table_schema = 'fluxqueue' ORDER BY c.ordinal_position",
    )
    columns: dict[str, list[str]] = {}
    for each in found:
        columns.setdefault(each["table_name"], []).append(each["column_name"])
    documented: dict[str, list[str]] = {}
    for section in re.split(
        r"^### ", (DOCS / "reference" / "history-views.md").read_text(), flags=re.MULTILINE
    )[1:]:
        name = re.match(r"`fluxqueue\.(\w+)`", section)
        if name is not None:
            table = section.split("\n\n## ")[0]
            documented[name[1]] = [
                column
                for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
                for column in re.findall(r"`(\w+)`", line)
            ]
    assert {view: sorted(names) for view, names in documented.items()} == {
        view: sorted(names) for view, names in columns.items()
    }
