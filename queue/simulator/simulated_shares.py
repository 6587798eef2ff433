"""Accounts with shares on a trace: their use, halved with time, and the order of work that follows from it.

The factors and priorities are those of a cluster (`fluxqueue.queue.model.fair_share`, `fluxqueue.api.priorityfactors`). Between two events
each account uses a constant number of nodes, so its use is known exactly at each event.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from fluxqueue.api.fluxqueues import PriorityWeights
from fluxqueue.api.names import DEFAULT_QUEUE
from fluxqueue.queue.model.accounts import Account, AccountTree
from fluxqueue.queue.model.fair_share import fair_shares
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities
from fluxqueue.queue.simulator.traces import Trace

__all__ = ["FAIR_SHARE_ONLY", "SimulatedShares", "parse_accounts", "with_accounts"]

FAIR_SHARE_ONLY = PriorityWeights(fair_share=1_000_000)
"""Weights of queues in which the fair share decides, and the submit time among work of one account."""
_PERIOD_S = 60
_MOST_SHARES = 1_000_000


class SimulatedShares:
    """What accounts use on a virtual clock.

    Parameters
    ----------
    shares
        Of each account; all are below the same parent.
    half_life_s
        After this time a use counts half.
    weights
        Of the queues.
    queues
        The queues that have these weights.
    """

    def __init__(
        self,
        shares: Mapping[str, int],
        half_life_s: float,
        weights: PriorityWeights = FAIR_SHARE_ONLY,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
    ) -> None:
        self.uses: Counter[str] = Counter()
        self._tree = AccountTree({name: Account(name, (name,), shares=number) for name, number in shares.items()})
        self._half_life_s = half_life_s
        self._weights = weights
        self._queues = queues
        self._running: Counter[str] = Counter()
        self._charged_until = 0
        self._computed_at: int | None = None
        self._factors: dict[str, float] = {}

    def started(self, account: str, nodes: int) -> None:
        """Count nodes that an account uses from now on."""
        self._running[account] += nodes

    def ended(self, account: str, nodes: int) -> None:
        """Count nodes that an account uses no more."""
        self._running[account] -= nodes

    def advance(self, now_s: int) -> None:
        """Charge the accounts up to a time."""
        halved = math.pow(0.5, (now_s - self._charged_until) / self._half_life_s)
        weighted_s = self._half_life_s / math.log(2) * (1 - halved)
        self.uses = Counter({name: self.uses[name] * halved + self._running[name] * weighted_s for name in self._tree.accounts})
        self._charged_until = now_s

    def priorities(self, now_s: int, at: datetime) -> AddedPriorities | None:
        """Return the priorities that hold from this time on if a minute is over and they may differ from those before; else None.

        Parameters
        ----------
        now_s, at
            The time on the virtual clock, and as that of the workloads.
        """
        if self._computed_at is not None and now_s - self._computed_at < _PERIOD_S:
            return None
        factors = {name: each.factor or 0.0 for name, each in fair_shares(self._tree, self.uses).items()}
        same = self._computed_at is not None and factors == self._factors and not self._weights.age
        self._computed_at, self._factors = now_s, factors
        return None if same else AddedPriorities(dict.fromkeys(self._queues, (self._weights, 0)), factors, at)


def parse_accounts(texts: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Read ``NAME=SHARES`` or ``NAME=SHARES:PART``: shares of each account, and its part of the jobs in proportion to those of the others.

    Raises
    ------
    ValueError
        With the text and the accepted form.
    """
    accounts: dict[str, tuple[int, float]] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        shares, _, part = rest.partition(":")
        try:
            weight = float(part or 1)
        except ValueError:
            weight = 0.0
        if not name or not (shares.isdecimal() and int(shares) <= _MOST_SHARES) or not 0 < weight < math.inf:
            raise ValueError(f"--account {text}: write NAME=SHARES or NAME=SHARES:PART, such as physics=3 or biology=1:10")
        if name in accounts:
            raise ValueError(f"--account {text}: the account {name!r} is named twice")
        accounts[name] = int(shares), weight
    return accounts


def with_accounts(trace: Trace, accounts: Mapping[str, tuple[int, float]], seed: int) -> Trace:
    """Return the same jobs, each given to an account at random, in proportion to the parts of the accounts."""
    parts = np.array([part for _, part in accounts.values()])
    drawn = np.random.default_rng([seed, 2]).choice(len(parts), len(trace.jobs), p=parts / parts.sum())
    names = [*accounts]
    return replace(trace, jobs=tuple(replace(job, account=names[at]) for job, at in zip(trace.jobs, drawn.tolist(), strict=True)))
