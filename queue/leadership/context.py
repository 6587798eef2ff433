"""What every part of a leader is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Controller", "LeaderContext"]


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """The leader's access to the cluster, the tables and people.

    Attributes
    ----------
    api, caches
        The API server, and what this replica's watches know of it.
    ledger
        The queue: the tables, and the leader's copy of them.
    trigger
        Requests control tasks.
    recorder
        Sends Events.
    config
        The configuration file.
    """

    api: Api
    caches: Caches
    ledger: Ledger
    trigger: Trigger
    recorder: EventRecorder
    config: QueueConfig


class Controller(Protocol):
    """A part of the leader that reacts to changes of objects and rows."""

    def resync(self) -> None:
        """Compare everything the controller is responsible for."""

    async def run(self) -> None:
        """Work until cancelled."""
