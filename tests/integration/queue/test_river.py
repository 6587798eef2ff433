"""The view ``river_job`` against the schema of River, a queue for Go programs: the same columns and states,
and rows that its table takes.

River's schema is in its Go module, which is of another licence (MPL 2.0), so nothing of it is copied here but
the facts in `COLUMNS` and `STATES`. The tests of River's own files take the module from Go's cache, and are
skipped where it is not; ``make test-river`` fetches it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from support.queue_records import Leader, a_requeue

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange
from fluxqueue.queue.model.reasons import MATCHABLE_REASONS
from fluxqueue.queue.model.records import Epoch, Reservation
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger

MODULE = "github.com/riverqueue/river/riverdriver/riverpgxv5@v0.51.1"
STATES = ["available", "cancelled", "completed", "discarded", "pending", "retryable", "running", "scheduled"]
COLUMNS = [
    ("id", "bigint", False),
    ("state", "river_job_state", False),
    ("attempt", "smallint", False),
    ("max_attempts", "smallint", False),
    ("attempted_at", "timestamp with time zone", True),
    ("created_at", "timestamp with time zone", False),
    ("finalized_at", "timestamp with time zone", True),
    ("scheduled_at", "timestamp with time zone", False),
    ("priority", "smallint", False),
    ("args", "jsonb", False),
    ("attempted_by", "text[]", True),
    ("errors", "jsonb[]", True),
    ("kind", "text", False),
    ("metadata", "jsonb", False),
    ("queue", "text", False),
    ("tags", "character varying(255)[]", False),
    ("unique_key", "bytea", True),
    ("unique_states", "bit(8)", True),
]
"""Columns of River's table: name, type, and whether a row may have none."""
Connection = psycopg.AsyncConnection[dict[str, Any]]


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    async with await psycopg.AsyncConnection.connect(
        database, autocommit=True, row_factory=dict_row
    ) as opened:
        yield opened


async def _rows(connection: Connection, query: str) -> list[dict[str, Any]]:
    return await (await connection.execute(query.encode())).fetchall()


async def _columns(connection: Connection, relation: str) -> list[tuple[str, str, bool]]:
    found = await _rows(
        connection,
        "SELECT attname AS name, format_type(atttypid, atttypmod) AS type, "
        "NOT attnotnull AS optional FROM pg_attribute"
        f" WHERE attrelid = '{relation}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    )
    return [(each["name"], each["type"].rpartition(".")[2], each["optional"]) for each in found]


async def _states(connection: Connection, schema: str) -> list[str]:
    found = await _rows(
        connection,
        f"SELECT enumlabel AS state FROM pg_enum WHERE enumtypid = '{schema}.river_job_state'::regtype "
        "ORDER BY enumsortorder",
    )
    return [each["state"] for each in found]


async def _add_control_tasks(connection: Connection) -> None:
    await connection.execute(
        "SET search_path = fluxqueue, procrastinate;"
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status, scheduled_at, attempts,"
        "  queueing_lock)"
        " SELECT 'default', 'fluxqueue.sweep', status::procrastinate_job_status, at, attempts,"
        "  status || attempts"
        "  FROM (VALUES ('todo', NULL, 0), ('todo', now() + interval '1 h', 1), ('doing', NULL, 0),"
        "               ('succeeded', NULL, 1), ('failed', NULL, 2), ('cancelled', NULL, 0),"
        "               ('aborted', NULL, 1)) AS t (status, at, attempts)"
    )


async def _one_of_each(leader: Leader, connection: Connection) -> dict[str, str]:
    """Bring workloads and control tasks into every state of River's,
    and return the wanted state of each workload by name.
    """
    store, epoch = leader.store, leader.epoch
    wanted = {
        "waits": "available",
        "held": "pending",
        "backs-off": "retryable",
        "reserved": "scheduled",
        "stopped": "cancelled",
    }
    rows = {each.name: each for each in await leader.submit(*wanted)}
    wanted |= {
        "has-nodes": "running",
        "runs": "running",
        "drains": "running",
        "succeeded": "completed",
        "failed": "discarded",
    }
    rows |= {
        each.name: each
        for each in await leader.allocate("has-nodes", "runs", "drains", "succeeded", "failed")
    }
    now = await store.now()
    await store.set_reasons(
        epoch, [ReasonChange(workload=rows["held"].id, reason=Reason.HELD, message="by a person")]
    )
    await store.set_requeue_states(
        epoch, {rows["backs-off"].id: RequeueState(starts=1, not_before=now + timedelta(hours=1))}
    )
    (jobid,) = await store.next_jobids(1)
    soon = now + timedelta(hours=2)
    await store.reserve(
        epoch,
        [
            Reservation(
                workload=rows["reserved"].id, jobid=jobid, first_start=soon, start=soon, end=None, shares=()
            )
        ],
        [],
    )
    await store.mark_started(epoch, [rows[name].id for name in ("runs", "drains", "failed")])
    await store.mark_draining(epoch, [rows["drains"].id])
    await store.evict(
        epoch, [Eviction(workload=rows["failed"].id, reason=Reason.PREEMPTED, message="by science/urgent")]
    )
    await store.requeue(epoch, [a_requeue(rows["failed"].id)])
    (again,) = await store.workloads([rows["failed"].id])
    await store.grant(epoch, [await leader.grant_for(again)])
    await store.finish(
        epoch,
        [
            Ending(rows["stopped"].id, State.CANCELLED, Outcome.CANCELLED, ""),
            Ending(rows["succeeded"].id, State.COMPLETED, Outcome.SUCCEEDED, ""),
            Ending(rows["failed"].id, State.FAILED, Outcome.FAILED, "exit code 3"),
        ],
    )
    await _add_control_tasks(connection)
    return wanted


async def test_the_view_has_the_columns_of_river_and_its_states(connection: Connection) -> None:
    assert [(name, kind) for name, kind, _ in await _columns(connection, "fluxqueue.river_job")] == [
        (name, kind) for name, kind, _ in COLUMNS
    ]
    assert await _states(connection, "fluxqueue") == STATES


async def test_workloads_have_the_states_that_the_page_says_before_and_after_pruning(
    leader: Leader, connection: Connection
) -> None:
    wanted = await _one_of_each(leader, connection)
    query = "SELECT *, args ->> 'name' AS name FROM fluxqueue.river_job WHERE id > 0 ORDER BY id"
    found = await _rows(connection, query)
    assert {each["name"]: each["state"] for each in found} == wanted
    assert set(wanted.values()) == set(STATES)
    (failed,) = [each for each in found if each["name"] == "failed"]
    assert [(each["attempt"], each["error"]) for each in failed["errors"]] == [
        (1, "Preempted: by science/urgent"),
        (2, "exit code 3"),
    ]
    assert (failed["attempt"], failed["priority"], failed["tags"]) == (2, 2, ["science", "job"])
    ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC) + timedelta(days=1, seconds=1))
    await Pruner(ledger, lambda _uid: False, retention_s=86_400).prune()
    assert len(await _rows(connection, "SELECT id FROM fluxqueue.ended_workload")) == 3
    assert await _rows(connection, query) == found


async def test_control_tasks_have_negative_ids_and_states_of_river(
    leader: Leader, connection: Connection
) -> None:
    await _one_of_each(leader, connection)
    found = await _rows(
        connection, "SELECT kind, state, attempt FROM fluxqueue.river_job WHERE id < 0 ORDER BY id DESC"
    )
    assert {each["kind"] for each in found} == {"fluxqueue.sweep"}
    assert [each["state"] for each in found] == [
        "available",
        "retryable",
        "running",
        "completed",
        "discarded",
        "cancelled",
        "cancelled",
    ]


async def test_no_row_lacks_what_river_always_has(leader: Leader, connection: Connection) -> None:
    await _one_of_each(leader, connection)
    always = [name for name, _, optional in COLUMNS if not optional]
    found = await _rows(connection, "SELECT * FROM fluxqueue.river_job")
    assert {(each["kind"], name) for each in found for name in always if each[name] is None} == set()


async def test_the_view_cannot_be_written(leader: Leader, connection: Connection) -> None:
    await leader.submit("waits")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        await connection.execute("UPDATE fluxqueue.river_job SET state = 'cancelled'")


async def test_reasons_that_the_view_calls_pending_are_those_that_block(
    leader: Leader, connection: Connection
) -> None:
    workloads = dict(
        zip(Reason, await leader.submit(*(f"job-{number}" for number in range(len(Reason)))), strict=True)
    )
    await leader.store.set_reasons(
        leader.epoch,
        [ReasonChange(workload=each.id, reason=reason, message="why") for reason, each in workloads.items()],
    )
    found = {
        each["id"]: each["state"]
        for each in await _rows(connection, "SELECT id, state FROM fluxqueue.river_job WHERE id > 0")
    }
    pending = {reason for reason, workload in workloads.items() if found[workload.id] == "pending"}
    assert set(Reason) - pending - {Reason.TIME_LIMIT} == MATCHABLE_REASONS, "TimeLimit is of running work"


# ---- River's own schema ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def river_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return River's migrations in order, from Go's cache of modules;
    with ``FLUXQUEUE_RIVER=fetch`` also from the module proxy.
    """
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go on PATH, which has River's module in its cache")
    folder = tmp_path_factory.mktemp("river")
    (folder / "go.mod").write_text("module none\n\ngo 1.21\n")
    offline = {} if os.environ.get("FLUXQUEUE_RIVER") == "fetch" else {"GOPROXY": "off"}
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=folder,
        env=os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off", "GOTOOLCHAIN": "local", **offline},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        if not offline:
            pytest.fail(f"{MODULE} cannot be fetched: {done.stdout}{done.stderr}")
        pytest.skip(f"{MODULE} is not in Go's cache: make test-river fetches it")
    files = sorted((Path(json.loads(done.stdout)["Dir"]) / "migration" / "main").glob("*.up.sql"))
    assert files
    return [file.read_text().replace("/* TEMPLATE: schema */", "river.") for file in files]


@pytest.fixture
async def river(connection: Connection, river_files: list[str]) -> Connection:
    """River's schema, as its own migrations make it, next to ours."""
    await connection.execute("CREATE SCHEMA river")
    for text in river_files:
        await connection.execute(text.encode())
    return connection


async def test_the_facts_here_are_those_of_rivers_own_migrations(river: Connection) -> None:
    assert await _columns(river, "river.river_job") == COLUMNS
    assert await _states(river, "river") == STATES


async def test_rivers_own_table_takes_every_row_of_the_view(leader: Leader, river: Connection) -> None:
    """All constraints of River hold: which states have an end, the range of the priority,
    the length of names.
    """
    await _one_of_each(leader, river)
    names = ", ".join(name for name, _, _ in COLUMNS)
    values = names.replace("state,", "state::text::river.river_job_state,", 1)
    await river.execute(
        f"INSERT INTO river.river_job ({names}) SELECT {values} FROM fluxqueue.river_job".encode()
    )
    counts = "SELECT state::text, count(*) FROM {}.river_job GROUP BY 1 ORDER BY 1"
    assert await _rows(river, counts.format("river")) == await _rows(river, counts.format("fluxqueue"))
