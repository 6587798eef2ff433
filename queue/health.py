"""Readiness of a replica of the queue or of the scheduler, as its health port tells it
(`fluxqueue.serving.health`).

The leader is ready when work can flow: its caches are filled, and Postgres and Fluxion answer where it needs
them. A follower is ready when its caches are filled, so that it can take over at any time. Any pod of the
cluster may ask, so the answer has only the role and the names of the conditions that do not hold; ``/status``
of the HTTPS port has their sentences (`fluxqueue.queue.admin.server`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from prometheus_client import Gauge

from fluxqueue.queue.metrics import ROLE
from fluxqueue.serving.health import HealthServer

__all__ = ["ReplicaRole", "ShownRole", "health_server"]


class ReplicaRole(enum.StrEnum):
    """What a replica does."""

    STARTING = "starting"
    FOLLOWER = "follower"
    LEADER = "leader"


class ShownRole:
    """The role that a replica shows, in its answers and in the metrics: LEADER only while its Lease is held.

    Attributes
    ----------
    held
        Return whether this process holds the Lease now.
    """

    def __init__(self, gauge: Gauge = ROLE) -> None:
        self.held: Callable[[], bool] = lambda: False
        self._role = ReplicaRole.STARTING
        for each in ReplicaRole:
            gauge.labels(str(each)).set_function(lambda each=each: float(self.role is each))  # type: ignore[misc]

    @property
    def role(self) -> ReplicaRole:
        """The role now; a process that has lost its Lease is as good as one that starts,
        since it ends and starts again.
        """
        return ReplicaRole.STARTING if self.lost else self._role

    @property
    def lost(self) -> bool:
        """True if this process led, and does not any more."""
        return self._role is ReplicaRole.LEADER and not self.held()

    def conditions(self) -> Mapping[str, str]:
        """Return the condition ``lease`` if the Lease is lost."""
        return (
            {"lease": "the Lease is lost: this process ends, and starts again as a follower"}
            if self.lost
            else {}
        )

    def become(self, role: ReplicaRole) -> None:
        """Change the role."""
        self._role = role


Conditions = Callable[[], Mapping[str, str]]


def health_server(
    host: str, port: int, conditions: Conditions, role: Callable[[], ReplicaRole]
) -> HealthServer:
    """Make the server of liveness and readiness.

    Parameters
    ----------
    host, port
        Where to listen.
    conditions
        Return what is missing now, as name -> sentence; empty if the replica is ready.
    role
        Return the role this replica has now.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """

    def ready() -> tuple[bool, Mapping[str, object]]:
        missing = sorted(conditions())
        return not missing, {"ready": not missing, "role": role(), "missing": missing}

    return HealthServer(host, port, ready)
