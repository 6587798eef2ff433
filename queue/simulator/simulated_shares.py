"""Accounts with shares on a trace: their use, halved with time, and the order of work that follows from it.

The factors and priorities are those of a cluster (`fluxqueue.queue.model.fair_share`,
`fluxqueue.api.priorityfactors`). Between two events each account uses a constant number of nodes, so its use
is known exactly at each event.
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
from fluxqueue.queue.model.fair_share import fair_shares, user_shares
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities
from fluxqueue.queue.simulator.traces import Trace, TraceJob

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
        Of the default queue.
    among_users
        The work of each account is ordered by what each of its users used.
    """

    def __init__(
        self,
        shares: Mapping[str, int],
        half_life_s: float,
        weights: PriorityWeights = FAIR_SHARE_ONLY,
        *,
        among_users: bool = False,
    ) -> None:
        self.uses: Counter[str] = Counter()
        self._among_users = among_users
        self._used: Counter[tuple[str, str]] = Counter()
        """By account and user."""
        self._tree = AccountTree(
            {name: Account(name, (name,), shares=number) for name, number in shares.items()}
        )
        self._half_life_s = half_life_s
        self._weights = weights
        self._running: Counter[tuple[str, str]] = Counter()
        self._charged_until = 0
        self._computed_at: int | None = None
        self._factors: Mapping[str, tuple[float, Mapping[str, float]]] = {}

    def started(self, job: TraceJob, nodes: int) -> None:
        """Count nodes that the account and the user of a job use from now on."""
        self._running[job.account, job.user] += nodes

    def ended(self, job: TraceJob, nodes: int) -> None:
        """Count nodes that they use no more."""
        self._running[job.account, job.user] -= nodes

    def advance(self, now_s: int) -> None:
        """Charge the accounts up to a time."""
        halved = math.pow(0.5, (now_s - self._charged_until) / self._half_life_s)
        weighted_s = self._half_life_s / math.log(2) * (1 - halved)
        kinds = self._used.keys() | self._running.keys()
        self._used = Counter(
            {kind: self._used[kind] * halved + self._running[kind] * weighted_s for kind in kinds}
        )
        self.uses = Counter(dict.fromkeys(self._tree.accounts, 0.0))
        for (account, _), use in sorted(self._used.items()):
            self.uses[account] += use
        self._charged_until = now_s

    def priorities(self, now_s: int, at: datetime) -> AddedPriorities | None:
        """Return the priorities that hold from this time on if a minute is over and they may differ from
        those before; else None.

        Parameters
        ----------
        now_s, at
            The time on the virtual clock, and as that of the workloads.
        """
        if self._computed_at is not None and now_s - self._computed_at < _PERIOD_S:
            return None
        accounts = fair_shares(self._tree, self.uses)
        if self._among_users:
            accounts = {
                name: replace(each, users=user_shares(each, self._uses_in(name)))
                for name, each in accounts.items()
            }
        factors = {
            name: (each.factor or 0.0, {user: of.factor for user, of in each.users.items()})
            for name, each in accounts.items()
        }
        same = self._computed_at is not None and factors == self._factors and not self._weights.age
        self._computed_at, self._factors = now_s, factors
        return None if same else AddedPriorities({DEFAULT_QUEUE: (self._weights, 0)}, accounts, at)

    def _uses_in(self, account: str) -> dict[str, float]:
        return {user: use for (of, user), use in self._used.items() if of == account and user}


def parse_accounts(texts: Sequence[str]) -> dict[str, tuple[int, float]]:
    """Read ``NAME=SHARES`` or ``NAME=SHARES:PART``: shares of each account, and its part of the jobs in
    proportion to those of the others.

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
            raise ValueError(
                f"--account {text}: write NAME=SHARES or NAME=SHARES:PART, such as physics=3 or biology=1:10"
            )
        if name in accounts:
            raise ValueError(f"--account {text}: the account {name!r} is named twice")
        accounts[name] = int(shares), weight
    return accounts


def with_accounts(trace: Trace, accounts: Mapping[str, tuple[int, float]], seed: int) -> Trace:
    """Return the same jobs, each given to an account at random,
    in proportion to the parts of the accounts.
    """
    parts = np.array([part for _, part in accounts.values()])
    drawn = np.random.default_rng([seed, 2]).choice(len(parts), len(trace.jobs), p=parts / parts.sum())
    names = [*accounts]
    return replace(
        trace,
        jobs=tuple(
            replace(job, account=names[at]) for job, at in zip(trace.jobs, drawn.tolist(), strict=True)
        ),
    )
