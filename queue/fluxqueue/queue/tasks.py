"""The control tasks ``schedule``, ``release`` and ``sweep``."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Store

__all__ = ["ControlTasks", "Handlers", "Trigger", "WorkersEnded"]


class Handlers(Protocol):
    """What the service does when a control task runs; one call of each at a time."""

    async def schedule(self) -> None:
        """Run a scheduling cycle."""

    async def release(self) -> None:
        """Let granted workloads go."""

    async def sweep(self) -> None:
        """Compare objects, rows and the matcher; repair what differs."""


class WorkersEnded(Exception):
    """A worker of the control tasks ended by itself: the process should end, and be started again."""


class Trigger:
    """Asks for control tasks. Call it after the commit of what the task is to see."""

    async def schedule(self) -> None:
        """Ask for a scheduling cycle that begins after now."""
        raise NotImplementedError

    async def release(self) -> None:
        """Ask for releases."""
        raise NotImplementedError

    async def sweep(self) -> None:
        """Ask for a sweep."""
        raise NotImplementedError


class ControlTasks:
    """The control tasks of one shard, their trigger and their workers.

    Examples
    --------
    >>> async with ControlTasks(dsn, store) as tasks:
    ...     await tasks.trigger.schedule()
    ...     await tasks.run_workers(handlers, epoch)
    """

    def __init__(self, dsn: str, store: Store, shard: str = "default") -> None:
        self.trigger: Trigger

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError

    async def run_workers(self, handlers: Handlers, epoch: Epoch) -> None:
        """Run the workers until cancelled; on the leader only.

        Raises
        ------
        WorkersEnded
            If a worker ended by itself (its database connections are gone).
        StaleLeader
            If a handler found that another leader took over.
        """
        raise NotImplementedError
