"""Writes of the project's programs, from the API server's audit log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from fluxqueue.local.audit_log import ObjectReference, read_audit_log
from fluxqueue.local.inprocess import InProcessCluster

__all__ = ["Write", "writes_of", "writes_of_queues"]

_AGENT = re.compile(r"^fluxqueue/(\w+) \((.+)\)$")
_VERBS = frozenset({"create", "update", "patch", "delete"})


@dataclass(frozen=True)
class Write:
    """A request of one of the project's programs that changes an object."""

    at: datetime
    replica: str
    verb: str
    resource: str
    name: str
    code: int

    @property
    def refused_for_its_version(self) -> bool:
        """True if the object had changed since the writer read it: the request changed nothing."""
        return self.code == HTTPStatus.CONFLICT


def writes_of_queues(cluster: InProcessCluster) -> Iterator[Write]:
    """Yield every write of a queue replica, see `writes_of`."""
    return writes_of(cluster, "queue")


def writes_of(cluster: InProcessCluster, program: str) -> Iterator[Write]:
    """Yield every write of a replica of a program (``queue``, ``scheduler``) in the order of the log. The
    cluster needs ``audit``.

    ``replica`` is the name of its pod, ``resource`` has the subresource after a slash.
    """
    log = cluster.control_plane.folder / "audit.log"
    for event in read_audit_log(log, containing=f'"fluxqueue/{program} ('.encode()):
        agent = _AGENT.match(event.user_agent)
        if agent is None or event.verb not in _VERBS:
            continue
        target = event.object_ref or ObjectReference()
        resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
        yield Write(
            event.request_received_timestamp,
            agent[2],
            event.verb,
            resource,
            f"{target.namespace}/{target.name}",
            event.code,
        )
