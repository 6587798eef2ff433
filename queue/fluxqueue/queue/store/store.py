"""The store as one thing: what the controllers hold."""

from __future__ import annotations

from fluxqueue.queue.store.allocations import Allocations
from fluxqueue.queue.store.leadership import Leadership
from fluxqueue.queue.store.queues import Queues
from fluxqueue.queue.store.reservations import Reservations
from fluxqueue.queue.store.workloads import Workloads

__all__ = ["Store"]


class Store(Leadership, Workloads, Allocations, Reservations, Queues):
    """The queue in Postgres. Each method is one transaction in one round trip; methods with an ``epoch`` are fenced.

    Any of them raises `DatabaseUnavailable` when Postgres cannot be reached within the pool's timeout or goes away meanwhile: then a
    change may or may not have been made, and repeating the call is right. Fenced ones raise `StaleLeader`.

    Examples
    --------
    >>> async with Database(dsn) as database:
    ...     store = Store(database)
    ...     epoch = await store.acquire_leadership("replica-0")
    ...     pending = await store.pending()
    """
