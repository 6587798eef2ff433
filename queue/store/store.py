"""The store: all its parts in one class."""

from __future__ import annotations

from fluxqueue.queue.store.account_use import AccountUse
from fluxqueue.queue.store.allocations import Allocations
from fluxqueue.queue.store.ended_workloads import EndedWorkloads
from fluxqueue.queue.store.leadership import Leadership
from fluxqueue.queue.store.reservations import Reservations
from fluxqueue.queue.store.reserved_nodes import ReservedNodes
from fluxqueue.queue.store.retention import Retention
from fluxqueue.queue.store.run_times import RunTimes
from fluxqueue.queue.store.workloads import Workloads

__all__ = ["Store"]


class Store(
    Leadership,
    Workloads,
    Allocations,
    Reservations,
    ReservedNodes,
    Retention,
    EndedWorkloads,
    AccountUse,
    RunTimes,
):
    """The queue in Postgres. Each method is one transaction in one round trip; methods with an ``epoch`` are
    fenced.

    Any of them raises `DatabaseUnavailable` if Postgres cannot be reached within the pool's timeout or goes
    away meanwhile. Then a change may have been made or not, and the call may be repeated. Fenced methods
    raise `StaleLeader`.

    Examples
    --------
    >>> async with Database(dsn) as database:
    ...     store = Store(database)
    ...     epoch = await store.acquire_leadership("replica-0")
    ...     pending = await store.pending()
    """
