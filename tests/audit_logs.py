"""The API server's audit log: who wrote what, when, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from fluxqueue.local.inprocess import InProcessPlane

__all__ = ["Write", "writes_of_queues"]

_AGENT = re.compile(r"^fluxqueue/queue \((.+)\)$")
_VERBS = frozenset({"create", "update", "patch", "delete"})


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    request_received_timestamp: datetime
    user_agent: str = ""
    object_ref: _Object | None = None
    response_status: _Status | None = None


@dataclass(frozen=True)
class Write:
    """One request that changes something, sent by a queue."""

    at: datetime
    replica: str
    verb: str
    resource: str
    name: str
    code: int


def writes_of_queues(plane: InProcessPlane) -> Iterator[Write]:
    """Every write of a queue replica, in the order of the log; needs a plane with ``audit``.

    ``replica`` is the name of its pod, ``resource`` has the subresource behind a slash.
    """
    decoder = msgspec.json.Decoder(_Event)
    with (plane.control_plane.folder / "audit.log").open("rb") as lines:
        for line in lines:
            if b'"fluxqueue/queue (' not in line or not line.endswith(b"\n"):
                continue
            event = decoder.decode(line)
            agent = _AGENT.match(event.user_agent)
            if agent is None or event.verb not in _VERBS:
                continue
            what: Any = event.object_ref or _Object()
            resource = f"{what.resource}/{what.subresource}" if what.subresource else what.resource
            code = event.response_status.code if event.response_status else 0
            yield Write(event.request_received_timestamp, agent[1], event.verb, resource, f"{what.namespace}/{what.name}", code)
