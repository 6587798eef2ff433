"""What the scheduler asks about everything around the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from fluxqueue.queue.scheduling.grants import Promised
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules, NoMatchRules
from fluxqueue.queue.scheduling.growth import JobSizes, NoJobSizes
from fluxqueue.queue.scheduling.limits.quotas import Accounts, Room, no_accounts, no_room_limited
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs, ShownVictims
from fluxqueue.queue.scheduling.reservations.estimates import nothing_published
from fluxqueue.queue.scheduling.reservations.reservation_book import ReservationBook

__all__ = ["Surroundings"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around the queue: nothing, where it is not given.

    Attributes
    ----------
    accounts
        Returns the accounts with their limits; called in every cycle.
    room
        Returns what the ResourceQuotas leave; called in every cycle.
    victims
        What the cluster shows of work that may be preempted.
    published
        Returns the first estimate of a workload that a former leader gave.
    sizes
        The Jobs that may grow.
    rules
        Rules about other pods.
    book
        What is set aside for people, brought up to date in every cycle; None: nothing.
    """

    accounts: Accounts = no_accounts
    room: Room = no_room_limited
    victims: ShownVictims = field(default_factory=OnlyJobs)
    published: Promised = nothing_published
    sizes: JobSizes = field(default_factory=NoJobSizes)
    rules: MatchRules = field(default_factory=NoMatchRules)
    book: ReservationBook | None = None
