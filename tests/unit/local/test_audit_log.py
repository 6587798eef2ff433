"""The audit log is read event by event, also while the API server writes to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fluxqueue.local.audit_log import read_audit_log


def event(name: str, **fields: Any) -> str:
    return json.dumps(
        {
            "verb": "create",
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": "2026-01-01T00:00:01.000000Z",
            "userAgent": "fluxqueue/queue (a)",
            "objectRef": {"resource": "pods", "namespace": "default", "name": name, "subresource": "binding"},
            **fields,
        }
    )


def test_only_lines_with_the_given_bytes_are_read(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(
        f"{event('a', responseStatus={'code': 201})}\nnot json\n{event('b', userAgent='kubectl')}\n"
    )
    (read,) = read_audit_log(log, containing=b"fluxqueue/queue")
    assert read.object_ref is not None
    assert (
        read.object_ref.name,
        read.code,
        (read.stage_timestamp - read.request_received_timestamp).total_seconds(),
    ) == ("a", 201, 1)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(f"{event('a')}\n{event('b')[:-5]}")
    assert [
        read.object_ref.name for read in read_audit_log(log, containing=b"fluxqueue") if read.object_ref
    ] == ["a"]


def test_an_event_without_a_response_has_code_0(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(f"{event('a')}\n")
    assert [read.code for read in read_audit_log(log, containing=b"fluxqueue")] == [0]
