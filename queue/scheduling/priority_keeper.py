"""Keeps the order of work as the weights of its queues say: once a minute, and when a FluxQueue or a
FluxAccount was edited.

The accounts are charged in the tables, their factors follow from that (`fluxqueue.queue.model.fair_share`),
and the priorities of work from those (`fluxqueue.api.priorityfactors`). Between two such times a priority is
constant. A cycle only reads it, and work that arrives gets its own by the same figures at once. Nothing is
computed while no queue has weights, and nothing is charged while there are no accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import structlog

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.fair_share import FairShare, fair_shares, user_shares
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.errors import Unstorable
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PriorityKeeper"]

log = structlog.get_logger()

_PACE_S = 2.0
_BATCH = 1_000
"""Workloads whose priorities are computed before others get a turn."""


class PriorityKeeper:
    """Keeps use, fair shares and priorities current.

    Parameters
    ----------
    ledger
        The queue.
    fluxqueues
        The queues with their weights.
    accounts
        Returns the accounts as they are now.
    half_life_s, resource_weights
        How use is measured, by resource type of the graph.
    reordered
        Is called when the order of pending work changed.

    Attributes
    ----------
    fair_shares
        Fair share of each account, as of the last charge.
    """

    def __init__(
        self,
        ledger: Ledger,
        fluxqueues: ObjectCache[FluxQueue],
        accounts: Callable[[], AccountTree],
        *,
        half_life_s: float,
        resource_weights: Mapping[str, float],
        reordered: Callable[[], None],
    ) -> None:
        self.fair_shares: Mapping[str, FairShare] = {}
        self._ledger = ledger
        self._fluxqueues = fluxqueues
        self._accounts = accounts
        self._half_life_s = half_life_s
        self._resource_weights = resource_weights
        self._reordered = reordered
        self._listeners: list[Callable[[], None]] = []
        self._added = AddedPriorities({}, {}, ledger.clock())
        self._asked = asyncio.Event()
        self._users_charged = True
        """True if the tables may have the use of users."""
        self._uses: Mapping[str, float] = {}
        self._uses_of_users: Mapping[str, Mapping[str, float]] = {}

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener when the fair shares were computed again."""
        self._listeners.append(listener)

    def rules_changed(self, change: Change[FluxQueue] | Change[FluxAccount]) -> None:
        """Compute everything again after an edit of a queue or an account."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._asked.set()

    def resync(self) -> None:
        """Charge the accounts and compute everything again, soon."""
        self._asked.set()

    async def run(self) -> None:
        """Do so whenever asked, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.refresh()
            except DatabaseUnavailable as error:
                log.warning("priorities.postponed", error=str(error))
            await asyncio.sleep(_PACE_S)

    async def refresh(self) -> None:
        """Charge the accounts, and compute the fair shares and all priorities.

        Where a charge does not fit into the tables, the use of before counts on.

        Raises
        ------
        DatabaseUnavailable
            The priorities stay as they were.
        """
        tree = self._accounts()
        if tree.accounts:
            with _unstorable("accounts"):
                self._uses = await self._ledger.account_use.charge_accounts(
                    self._ledger.epoch, self._half_life_s, self._resource_weights
                )
        self.fair_shares = await self._with_users(tree, fair_shares(tree, self._uses))
        for listener in self._listeners:
            listener()
        weighed = self._added.any
        weights = {
            queue.metadata.name: (queue.spec.priority_weights, queue.spec.priority)
            for queue in self._fluxqueues.list()
            if queue.spec.priority_weights is not None
        }
        self._added = AddedPriorities(weights, self.fair_shares, self._ledger.clock())
        self._ledger.added_priority = self._added.of
        if (weighed or self._added.any) and await self._apply():
            self._reordered()

    async def _with_users(self, tree: AccountTree, shares: dict[str, FairShare]) -> dict[str, FairShare]:
        """Return fair shares with those of the users of accounts whose work is shared among them,
        who are charged too.
        """
        among = sorted(name for name, account in tree.accounts.items() if account.among_users)
        if not among and not self._users_charged:
            return shares
        with _unstorable("users"):
            self._uses_of_users = await self._ledger.account_use.charge_users(
                self._ledger.epoch, self._half_life_s, self._resource_weights, among
            )
            self._users_charged = bool(among)
        used = self._uses_of_users
        return shares | {
            name: replace(shares[name], users=user_shares(shares[name], used.get(name, {}))) for name in among
        }

    async def _apply(self) -> bool:
        """Give all work its priority; return True if any that waits has another one."""
        ids, changed = [workload.id for workload in self._ledger.all()], False
        for start in range(0, len(ids), _BATCH):
            changed = self._ledger.reprioritise(ids[start : start + _BATCH]) or changed
            await asyncio.sleep(0)
        return changed


@contextlib.contextmanager
def _unstorable(whom: str) -> Iterator[None]:
    """Report that a charge does not fit into the tables: what else is computed does not depend on it."""
    try:
        yield
    except Unstorable as error:
        OBJECT_FAILURES.labels(whom).inc()
        log.error("priorities.not_charged", whom=whom, error=str(error))
