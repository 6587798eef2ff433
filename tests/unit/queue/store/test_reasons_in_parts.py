"""Very many reasons are written in parts, so that others get turns between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.store import ledger as module


async def test_a_reason_that_changed_before_its_part_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REASONS_AT_ONCE", 2)
    rows = [a_workload(f"w{number}") for number in range(5)]
    ledger = RecordingLedger(*((row, None) for row in rows))
    parts: list[list[Any]] = []
    store = ledger._store.set_reasons

    async def set_reasons(epoch: Any, changes: Sequence[ReasonChange], **kinds: bool) -> Any:
        parts.append([change.workload for change in changes])
        if len(parts) == 1:
            ledger._put_workload(a_workload("w4", id=rows[4].id, reason=Reason.USER_SUSPENDED))
        return await store(epoch, changes, **kinds)

    monkeypatch.setattr(ledger._store, "set_reasons", set_reasons)
    changes = [ReasonChange(workload=row.id, reason=Reason.WAITING_FOR_NODES, message="none") for row in rows]
    await ledger.set_reasons([*changes[:2], *changes])
    assert parts == [[rows[0].id, rows[1].id], [rows[2].id, rows[3].id]]
    assert [row.reason for row in ledger.all()] == [Reason.WAITING_FOR_NODES] * 4 + [Reason.USER_SUSPENDED]
