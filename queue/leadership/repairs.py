"""The parts of a leader that repair what a crash, a restored backup or a person left:
sweep, doctor, adoption, retention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluxqueue.queue.leadership.context import Controller, LeaderContext
from fluxqueue.queue.leadership.planning import Capacity
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.recovery.adoption import adopt_released
from fluxqueue.queue.recovery.doctor import Doctor
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.recovery.work_metrics import WorkMetrics
from fluxqueue.queue.store.clock import LeaderClock

__all__ = ["make_sweeper"]


def make_sweeper(
    context: LeaderContext,
    capacity: Capacity,
    controllers: Sequence[Controller],
    scheduler_lease: tuple[str, str] | None,
    clock: LeaderClock,
    fluxjob_due: Callable[[Workload], bool],
    job_due: Callable[[str], bool],
) -> Sweeper:
    """Build the sweep.

    Parameters
    ----------
    context
        Of the leader.
    capacity
        The graph, which the doctor compares with the tables.
    controllers
        Resynced in each sweep.
    scheduler_lease
        Namespace and name of the Lease of our own scheduler; None where it is not installed.
    clock
        Of the leader; the doctor compares others with it.
    fluxjob_due, job_due
        True if the FluxJob of a workload waits to be written, or a Job (by its uid) to be taken in.
    """
    caches, ledger = context.caches, context.ledger
    doctor = Doctor(
        context.api,
        caches,
        ledger,
        capacity.graph,
        capacity.foreign_pods,
        scheduler_lease,
        clock.compare,
        fluxjob_due,
        job_due,
    )
    pruner = Pruner(
        ledger,
        caches.exists,
        retention_s=context.config.retention_seconds,
        accounting=context.config.accounting,
    )

    async def adopt() -> int:
        return await adopt_released(caches, ledger)

    return Sweeper(
        ledger,
        doctor,
        context.trigger,
        controllers,
        adopt,
        pruner.prune,
        WorkMetrics(ledger, caches.nodes.list).update,
    )
