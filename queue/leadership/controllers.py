"""The controllers of a leader and how they depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.leadership.context import Controller, LeaderContext
from fluxqueue.queue.miniclusters.controller import MiniClusterController
from fluxqueue.queue.miniclusters.preparations import MiniClusterSettings
from fluxqueue.queue.release.blockers import ReleaseBlockers
from fluxqueue.queue.release.object_release import ObjectReleaser, ReleaseSettings
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.release.releaser import Releaser
from fluxqueue.queue.requeue.bind_refusals import BindRefusals
from fluxqueue.queue.requeue.cancellation import Canceller
from fluxqueue.queue.requeue.give_backs import GiveBacks
from fluxqueue.queue.requeue.idle_work import IdleWork
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.pod_refusals import PodRefusals
from fluxqueue.queue.requeue.preemption_notices import PreemptionNotices
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.requeue.startup_monitor import StartupMonitor
from fluxqueue.queue.requeue.time_limits import TimeLimits
from fluxqueue.queue.tracking.composite_slots import keep_in_slots
from fluxqueue.queue.tracking.tracker import Tracker

__all__ = ["Controllers", "make_controllers"]


@dataclass(frozen=True, slots=True)
class Controllers:
    """Everything that turns changes of objects and rows into work.

    Attributes
    ----------
    controllers
        Those that a resync makes compare everything.
    intake
        Takes objects into the queue.
    releaser
        The body of the control task ``release``.
    requeuer
        Evicts workloads.
    startup_monitor
        Ends starts that take too long.
    idle
        Looks for idle work; None if nobody is to be asked for it.
    parts
        Those that are told of changes.
    """

    controllers: tuple[Controller, ...]
    intake: IntakeController
    releaser: Releaser
    requeuer: Requeuer
    startup_monitor: StartupMonitor
    idle: IdleWork | None
    parts: tuple[object, ...]


def make_controllers(context: LeaderContext, port_volume_pools: PortVolumePools) -> Controllers:
    """Build them."""
    api, caches, ledger = context.api, context.caches, context.ledger
    trigger, recorder, config = context.trigger, context.recorder, context.config
    keep_in_slots(caches.composite_trees, ledger)
    blockers = ReleaseBlockers()
    waiting = config.waiting_per_namespace.budget
    intake = IntakeController(api, caches, ledger, trigger, recorder, port_volume_pools, blockers, waiting)
    gates = PodGates(api, ledger, caches.pods.get_by_uid)
    requeuer = Requeuer(api, caches, ledger, trigger, gates, intake.enqueue, recorder)
    grace_s = config.successor_grace_seconds
    tracker = Tracker(api, caches, ledger, trigger, gates, intake.enqueue, requeuer.evict, grace_s=grace_s)
    canceller = Canceller(api, caches, ledger, trigger, recorder)
    time_limits = TimeLimits(api, caches, ledger, recorder)
    notices = PreemptionNotices(api, caches, ledger, recorder)
    give_backs = GiveBacks(api, caches, ledger, requeuer.pods, recorder)
    settings = MiniClusterSettings(config.image, config.cluster_domain)
    miniclusters = MiniClusterController(api, caches, ledger, requeuer.evict, recorder, settings, blockers)
    backoffs = JobBackoffs(caches, ledger.clock)
    pod_refusals = PodRefusals(ledger, trigger, backoffs)
    bind_refusals = BindRefusals(caches, ledger, requeuer, recorder)
    startup_monitor = StartupMonitor(
        caches,
        ledger,
        requeuer,
        pod_refusals,
        gates,
        backoffs,
        start_timeout_s=config.start_timeout_seconds,
        node_lost_s=config.node_lost_seconds,
    )
    release_settings = ReleaseSettings(config.pin_window_seconds, config.scheduler)
    prepare = miniclusters.preparations.prepare
    objects = ObjectReleaser(api, caches, ledger.clock, gates, prepare, release_settings, ledger.wall)
    releaser = Releaser(objects, ledger, trigger, intake.enqueue)
    rules = config.idle
    idle = IdleWork(caches, ledger, recorder, time_limits, rules) if rules.prometheus.url else None
    controllers: tuple[Controller, ...] = (
        intake,
        tracker,
        requeuer,
        canceller,
        time_limits,
        notices,
        give_backs,
        miniclusters,
        pod_refusals,
        bind_refusals,
        *([idle] if idle is not None else []),
    )
    parts = (*controllers, releaser, startup_monitor, backoffs)
    return Controllers(controllers, intake, releaser, requeuer, startup_monitor, idle, parts)
