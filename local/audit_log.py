"""The audit log of a local API server: who requested what, when, and with which response."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

__all__ = ["AuditEvent", "AuditUser", "ObjectReference", "read_audit_log"]


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """The object of a request."""

    api_group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class AuditUser(msgspec.Struct, frozen=True):
    """Who sent a request."""

    username: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One request, as in audit.k8s.io/v1.

    Attributes
    ----------
    request_received_timestamp, stage_timestamp
        When the request arrived, and when it was answered.
    """

    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: AuditUser = AuditUser()
    user_agent: str = ""
    object_ref: ObjectReference | None = None
    response_status: _Status | None = None
    annotations: dict[str, str] | None = None

    @property
    def forbidden(self) -> str:
        """Why the request was not authorized; empty if it was."""
        notes = self.annotations or {}
        return (
            notes.get("authorization.k8s.io/reason", "no rule")
            if notes.get("authorization.k8s.io/decision") == "forbid"
            else ""
        )

    @property
    def code(self) -> int:
        """The HTTP code of the response; 0 if there was none."""
        return self.response_status.code if self.response_status is not None else 0


def read_audit_log(log: Path, containing: bytes) -> Iterator[AuditEvent]:
    """Yield the events in the order of the log, without a last line that is still being written.

    Parameters
    ----------
    log
        The file, one JSON object per line.
    containing
        Only lines with these bytes are decoded.
    """
    decoder = msgspec.json.Decoder(AuditEvent)
    with log.open("rb") as lines:
        for line in lines:
            if containing in line and line.endswith(b"\n"):
                yield decoder.decode(line)
