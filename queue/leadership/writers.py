"""The parts of a leader that show users what it decided: in statuses and Events."""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.queue.config import Matcher
from fluxqueue.queue.leadership.context import Controller, LeaderContext
from fluxqueue.queue.leadership.planning import Planning
from fluxqueue.queue.model.idleness import not_idle
from fluxqueue.queue.requeue.idle_work import IdleWork
from fluxqueue.queue.status.events import EventReporter
from fluxqueue.queue.status.fluxaccount_writer import FluxAccountWriter
from fluxqueue.queue.status.fluxjob_writer import FluxJobWriter
from fluxqueue.queue.status.fluxqueue_writer import FluxQueueWriter

__all__ = ["Writers", "make_writers"]


@dataclass(frozen=True, slots=True)
class Writers:
    """What shows users what was decided.

    Attributes
    ----------
    fluxjobs
        Writes FluxJobs.
    controllers
        Those that a resync makes compare everything, with `fluxjobs`.
    """

    fluxjobs: FluxJobWriter
    controllers: tuple[Controller, ...]


def make_writers(context: LeaderContext, planning: Planning, idle: IdleWork | None) -> Writers:
    """Build them; `planning` has the estimates, fair shares, guarantees and budgets that they show,
    and `idle` what is said of idle work.
    """
    api, caches, ledger, recorder = context.api, context.caches, context.ledger, context.recorder
    scheduler, priorities = planning.scheduler, planning.priorities
    words = idle.words if idle is not None else not_idle
    fluxjobs = FluxJobWriter(api, caches, ledger, recorder, scheduler.estimates, words)
    controllers = (
        fluxjobs,
        EventReporter(api, caches, ledger, recorder, scheduler.estimates),
        FluxQueueWriter(
            api, caches, ledger, recorder, foreign_matcher=context.config.matcher is Matcher.FOREIGN
        ),
        FluxAccountWriter(
            api,
            caches,
            ledger,
            lambda: priorities.fair_shares,
            planning.guaranteed,
            scheduler.budgets,
            recorder,
        ),
    )
    return Writers(fluxjobs, controllers)
