"""The queueing discipline of each queue: its policy, and the rules of its FluxQueue that scheduling
follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import (
    AtLimit,
    BackfillDurations,
    Consolidation,
    FluxQueue,
    FluxQueueSpec,
    Planning,
    Policy,
    Preemption,
    PreemptionRules,
    Provision,
    QueueLimits,
    QueueState,
    ReservedNodes,
)
from fluxqueue.queue.scheduling.policies.backfill_pass import BackfillPass
from fluxqueue.queue.scheduling.policies.fcfs_pass import FcfsPass
from fluxqueue.queue.scheduling.policies.passes import CycleContext, Pass, PendingQueue

__all__ = ["DEFAULT_DEPTH", "Discipline", "disciplines_of", "without_plan"]

DEFAULT_DEPTH = 64
"""Most reservations of a hybrid or conservative queue, as Fluxion's ``reservation-depth``
(flux-config-sched-fluxion-qmanager(5))."""

_GRANTS_NOTHING = PreemptionRules()
_MOVES_NOTHING = Consolidation()
_USUAL_PLANNING = Planning()


@dataclass(frozen=True, slots=True)
class Discipline:
    """The policy of one queue.

    Attributes
    ----------
    depth
        Most reservations of a hybrid or conservative queue. Other policies ignore it.
    limits
        What the queue may use at once; None: no limits.
    match_policy
        How the matcher chooses nodes; empty: as the graph's own policy says.
    preemption_rules
        What its running work is granted before it is preempted.
    enforces_duration
        True if its work is ended at the end of its duration.
    at_limit
        Whether its work that waits for a limit keeps work behind it from starting under that limit.
    planning
        How it plans ahead.
    consolidation
        Whether its work is moved so that wide work starts sooner; not while the queue is held, as nothing
        would restart.
    """

    policy: Policy = Policy.EASY
    depth: int = DEFAULT_DEPTH
    limits: QueueLimits | None = None
    preemption: Preemption = Preemption.NEVER
    match_policy: str = ""
    provision: Provision = Provision.NONE
    preemption_rules: PreemptionRules = _GRANTS_NOTHING
    enforces_duration: bool = False
    at_limit: AtLimit = AtLimit.SKIP
    planning: Planning = _USUAL_PLANNING
    consolidation: Consolidation = _MOVES_NOTHING

    @property
    def reserves(self) -> bool:
        """True if the policy makes reservations."""
        return self.policy is not Policy.FCFS

    @property
    def reserves_latest(self) -> bool:
        """True if its reservations take the nodes that become free last."""
        return self.reserves and self.planning.reserved_nodes is ReservedNodes.FREE_LAST

    @property
    def predicts(self) -> bool:
        """True if work behind its reservations is tried for its predicted duration."""
        return self.reserves and self.planning.backfill_durations is BackfillDurations.PREDICTED

    def new_pass(self, queue: PendingQueue, context: CycleContext) -> Pass:
        """Return a pass of this policy over a queue."""
        match self.policy:
            case Policy.FCFS:
                return FcfsPass(queue, context)
            case Policy.EASY:
                return BackfillPass(queue, context, depth=1)
            case Policy.HYBRID | Policy.CONSERVATIVE:
                return BackfillPass(queue, context, depth=max(1, self.depth))


def without_plan(stated: Discipline) -> Discipline:
    """Return what is left of a discipline under a matcher without a clock:
    first come, first served, by the graph's own match policy.
    """
    return replace(stated, policy=Policy.FCFS, match_policy="")


def disciplines_of(queues: Iterable[FluxQueue]) -> dict[str, Discipline]:
    """Return the discipline of each FluxQueue, and of the queue ``default``, which exists without one."""
    specs = {names.DEFAULT_QUEUE: FluxQueueSpec(), **{queue.metadata.name: queue.spec for queue in queues}}
    return {
        name: Discipline(
            spec.policy,
            spec.reservation_depth or DEFAULT_DEPTH,
            spec.limits,
            spec.preemption,
            spec.match_policy or "",
            spec.provision,
            spec.preemption_rules or _GRANTS_NOTHING,
            spec.enforce_duration is not None and spec.enforce_duration.enabled,
            spec.at_limit,
            spec.planning or _USUAL_PLANNING,
            (spec.state is not QueueState.HELD and spec.consolidation) or _MOVES_NOTHING,
        )
        for name, spec in specs.items()
    }
