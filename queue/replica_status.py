"""The role of a replica, and what keeps it from being ready.

A condition is a name and a sentence: ``postgres``, ``caches``, ``api-server``, ``fluxion`` or ``lease``.
`kubectl describe pod` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.health import ReplicaRole, ShownRole
from fluxqueue.queue.metrics import POSTGRES_UP
from fluxqueue.queue.scheduling.scheduler import Scheduler

__all__ = ["ReplicaStatus"]

log = structlog.get_logger()


class ReplicaStatus:
    """What a replica reports of itself.

    Attributes
    ----------
    shown
        The role that it shows; it follows the Lease.
    """

    def __init__(self) -> None:
        self.shown = ShownRole()
        self._missing: dict[str, str] = {"start": "the service is starting"}
        self._problems: Callable[[], Mapping[str, str]] = dict

    @property
    def role(self) -> ReplicaRole:
        """What it does now."""
        return self.shown.role

    def become(self, role: ReplicaRole) -> None:
        """Change the role, also in the metrics."""
        self.shown.become(role)

    def wait_for(self, condition: str, reason: str) -> None:
        """Report one condition as missing until `clear` is called."""
        self._missing = {condition: reason}

    def clear(self) -> None:
        """Report that nothing is waited for."""
        self._missing = {}

    def watch(self, caches: Caches, scheduler: Scheduler | None = None) -> None:
        """Report from now on also what the watches and, on the leader, the last scheduling cycle fail at."""

        def problems() -> Mapping[str, str]:
            api_server, fluxion = (
                caches.watches.problem,
                scheduler.last_error if scheduler is not None else "",
            )
            return {
                name: reason for name, reason in (("api-server", api_server), ("fluxion", fluxion)) if reason
            }

        self._problems = problems

    def conditions(self) -> Mapping[str, str]:
        """Return what is missing now: name -> sentence; empty if the replica is ready."""
        return {**self._missing, **self._problems(), **self.shown.conditions()}

    def postgres_unavailable(self, error: Exception, retry_s: float) -> None:
        """Report that Postgres cannot be reached, or does not let us write;
        it is tried again in ``retry_s`` seconds.
        """
        POSTGRES_UP.set(0)
        level = log.debug if self._missing.get("postgres") == str(error) else log.warning
        self.wait_for("postgres", str(error))
        level(
            "postgres.unavailable",
            error=str(error),
            retry_s=retry_s,
            effect="running work continues, nothing new starts",
        )

    def postgres_available(self) -> None:
        """Report that Postgres answers, and clear what was waited for."""
        POSTGRES_UP.set(1)
        self.clear()
