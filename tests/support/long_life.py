"""Many short workloads in the ledger and the store, as a queue has them over months, without a cluster.

Every workload is inserted, granted and released, its pods get their slots, and it runs and ends. One in
twelve is cancelled while it is pending, and one in ten is requeued once. The objects of one in fifty exist
for a while after their end. Ended workloads are pruned as in a sweep.
"""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.changes import Ending, Eviction, Requeue, TakenSlot
from fluxqueue.queue.model.records import FluxionJobId, Grant, NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["TABLES", "LongLife", "Measure"]

TABLES = ("workload", "allocation", "slot", "reservation", "transition", "history")
_JOBSPEC = json.dumps(
    {
        "version": 9999,
        "resources": [
            {
                "type": "slot",
                "count": 4,
                "label": "pod",
                "with": [{"type": "core", "count": 20}, {"type": "memory", "count": 8}],
            }
        ],
        "attributes": {
            "system": {
                "duration": 600.0,
                "constraints": {"and": [{"properties": ["disk=ssd"]}, {"not": [{"hostlist": ["n1"]}]}]},
            }
        },
        "tasks": [{"command": ["science/job-000000"], "slot": "pod", "count": {"per_slot": 1}}],
    }
)
_BATCH = 250
_VACUUM = 2_500
"""Workloads from one vacuum to the next.
Postgres vacuums by itself at a thousandth of this rate: its daemon runs once a minute."""


@dataclass(frozen=True)
class Measure:
    """The size of this process and of the tables."""

    workloads: int
    objects: int
    resident_mib: float
    rows: Mapping[str, int]
    table_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """Size of the tables with their indexes."""
        return sum(self.table_bytes.values())


def described(number: int, pods: int) -> NewWorkload:
    """Return the description of one workload as the intake writes it."""
    return NewWorkload(
        uid=f"7c1d4a52-93f0-4a6e-8a2b-{number:012d}",
        api_version="batch/v1",
        kind="Job",
        namespace=f"team-{number % 20}",
        name=f"simulation-{number:07d}",
        queue="default",
        priority=number % 5,
        jobspec=_JOBSPEC,
        shape=f"{number % 50:064x}",
        pods=pods,
        duration_s=600,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
    )


class LongLife:
    """A leader that serves one batch after the other.

    Parameters
    ----------
    store
        The store of a migrated database.
    ledger
        The loaded ledger of the leader.
    dsn
        The database to measure.
    pods
        The pods of each workload; None for 1 to 4.
    prunes
        True to prune ended workloads after each batch.
    """

    def __init__(
        self, store: Store, ledger: Ledger, dsn: str, pods: int | None = None, *, prunes: bool = True
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._dsn = dsn
        self._pods = pods
        self._prunes = prunes
        self._existing: deque[str] = deque(maxlen=40)
        self.pruner = Pruner(ledger, lambda uid: uid in self._existing, retention_s=0)
        self.served = 0

    async def serve(self, workloads: int, batch: int = _BATCH) -> None:
        """Serve this many workloads to their ends, in batches."""
        for start in range(0, workloads, batch):
            await self._serve(min(batch, workloads - start))
            if self.served % _VACUUM < batch:
                await self._vacuum()

    async def _serve(self, count: int) -> None:
        numbers = range(self.served, self.served + count)
        ids = await self._ledger.upsert(
            [described(number, self._pods or 1 + number % 4) for number in numbers]
        )
        rows = [row for each in ids if (row := self._ledger.get(each)) is not None]
        self._existing.extend(row.uid for number, row in zip(numbers, rows, strict=True) if number % 50 == 0)
        cancelled = [row for number, row in zip(numbers, rows, strict=True) if number % 12 == 7]
        await self._ledger.finish(
            [Ending(row.id, State.CANCELLED, Outcome.CANCELLED, "by its FluxJob") for row in cancelled]
        )
        going = [row for row in rows if row not in cancelled]
        await self._run(going)
        again = going[::10]
        await self._ledger.evict(
            [
                Eviction(workload=row.id, reason=Reason.PREEMPTED, message="by a more urgent one")
                for row in again
            ]
        )
        await self._ledger.requeue(
            [
                Requeue(workload=row.id, reason=Reason.PREEMPTED, message="by a more urgent one")
                for row in again
            ]
        )
        await self._run(again)
        await self._ledger.end_slots(
            [(jobid, rank) for jobid, hosts in self._held(going) for rank in range(hosts)]
        )
        await self._ledger.mark_draining([row.id for row in going])
        await self._ledger.finish([Ending(row.id, State.COMPLETED, Outcome.SUCCEEDED) for row in going])
        self._ledger.take_freed()
        self.served += count
        if self._prunes:
            await self.pruner.prune()

    def _held(self, rows: list[Workload]) -> list[tuple[FluxionJobId, int]]:
        held = [allocation for row in rows if (allocation := self._ledger.allocation(row.id)) is not None]
        return [(allocation.jobid, len(allocation.slots)) for allocation in held]

    async def _run(self, rows: list[Workload]) -> None:
        jobids = await self._store.next_jobids(len(rows))
        now = datetime.now(UTC)
        grants = []
        for row, jobid in zip(rows, jobids, strict=True):
            hosts = tuple(f"ip-10-0-{jobid % 200}-{rank}.compute.internal" for rank in range(row.pods))
            shares = tuple(NodeShare(host, {"pod": 1}, {"core": 20, "memory": 8}) for host in hosts)
            grants.append(
                Grant(
                    workload=row.id,
                    jobid=jobid,
                    shares=shares,
                    hosts=hosts,
                    start=now,
                    end=now + timedelta(minutes=10),
                )
            )
        assert await self._ledger.grant(grants) == []
        claimed = [allocation.jobid for _, allocation in await self._ledger.claim_releases(len(grants), 60.0)]
        assert sorted(claimed) == sorted(jobids)
        await self._ledger.mark_released(claimed)
        self._ledger.releases_done(claimed)
        taken = [
            TakenSlot(grant.jobid, rank, f"pod-{grant.jobid}-{rank}", f"p-{rank}")
            for grant in grants
            for rank in range(len(grant.hosts))
        ]
        await self._ledger.take_slots(taken)
        await self._ledger.mark_started([row.id for row in rows])

    async def _vacuum(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            for table in TABLES:
                await connection.execute(f"VACUUM (ANALYZE) fluxqueue.{table}".encode())

    async def measure(self) -> Measure:
        """Measure after a vacuum."""
        await self._vacuum()
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            rows, sizes = {}, {}
            for table in TABLES:
                query = f"SELECT count(*), pg_total_relation_size('fluxqueue.{table}') FROM fluxqueue.{table}"
                row = await (await connection.execute(query.encode())).fetchone()
                assert row is not None
                rows[table], sizes[table] = row
        gc.collect()
        return Measure(self.served, len(gc.get_objects()), _resident_mib(), rows, sizes)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 2**20
