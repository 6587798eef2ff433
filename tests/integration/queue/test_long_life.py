"""A queue that serves for years keeps its size.

``FLUXQUEUE_LONG_LIFE`` is the number of workloads (`make test-long-life`: 100,000).
``FLUXQUEUE_LONG_LIFE_REPORT`` is a file for the measurements.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.long_life import LongLife, Measure

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger

WORKLOADS = int(os.environ.get("FLUXQUEUE_LONG_LIFE", "3000"))
LOOKS = 10


def _report(measures: list[Measure]) -> None:
    if report := os.environ.get("FLUXQUEUE_LONG_LIFE_REPORT"):
        Path(report).write_text(json.dumps([asdict(measure) for measure in measures], indent=2), "utf-8")


@pytest.mark.timeout(60 + WORKLOADS // 50)
async def test_memory_and_tables_do_not_grow_with_the_number_of_workloads_served(
    store: Store, epoch: Epoch, database: str
) -> None:
    ledger = Ledger(store, epoch, lambda: datetime.now(UTC))
    life = LongLife(store, ledger, database)
    measures = []
    for _ in range(LOOKS):
        await life.serve(WORKLOADS // LOOKS)
        measures.append(measure := await life.measure())
    _report(measures)
    assert life.served == WORKLOADS // LOOKS * LOOKS
    first, *later = measures[LOOKS // 3 :]  # the batches before fill everything that is retained
    for measure in later:
        assert measure.objects <= first.objects + 2_000
        assert measure.resident_mib <= first.resident_mib + 8
        assert measure.total_bytes <= first.total_bytes * 1.5 + 2**20
        assert measure.rows["history"] <= 40, "only those whose objects still stand"
        assert measure.rows["transition"] <= 40 * 8
        assert {
            table: measure.rows[table] for table in ("workload", "allocation", "slot", "reservation")
        } == {
            "workload": 0,
            "allocation": 0,
            "slot": 0,
            "reservation": 0,
        }
    assert ledger.all() == []
