"""Writes the status of FluxAccounts: at most every few seconds, only if it differs,
and from what the leader knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fluxqueue.api.fluxaccounts import BudgetStatus, FairShareStatus, FluxAccount, GuaranteedStatus
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.kinds import FLUXACCOUNTS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.fair_share import FairShare
from fluxqueue.queue.status.fluxaccount_status import account_status, usage_by_account
from fluxqueue.queue.status.usage import WorkUsage
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FluxAccountWriter", "GuaranteesShown"]

GuaranteesShown = Callable[[str], list[GuaranteedStatus]]
"""Returns what the status of the account of a name shows of its guarantee."""


class FluxAccountWriter(WorkStatusWriter[FluxAccount]):
    """Keeps the status of FluxAccounts current. Without FluxAccounts it does nothing.

    Parameters
    ----------
    api, caches, ledger
        Where the status is written, which FluxAccounts exist, and the queue.
    recorder
        For Events on accounts whose status cannot be written.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        fair_shares: Callable[[], Mapping[str, FairShare]],
        guarantees: Callable[[], GuaranteesShown],
        budgets: Callable[[], Mapping[str, BudgetStatus]],
        recorder: EventRecorder | None = None,
    ) -> None:
        super().__init__(FLUXACCOUNTS, caches.fluxaccounts, api, ledger, recorder)
        self._caches = caches
        self._fair_shares = fair_shares
        self._guarantees = guarantees
        self._budgets = budgets

    def account_changed(self, _change: Change[FluxAccount]) -> None:
        """Compare every account: one may be new."""
        self.resync()

    def shares_changed(self) -> None:
        """Compare every account: the fair shares were computed again."""
        self.resync()

    async def _write(self, names: list[str]) -> None:
        tree, fair_shares = self._caches.accounts.tree, self._fair_shares()
        guaranteed, budgets = self._guarantees(), self._budgets()
        usage = usage_by_account(self._ledger.all(), self._ledger.live(), tree)
        for name in names:
            account = self._objects.get("", name)
            if account is None:
                continue
            try:
                status = account_status(
                    account, usage.get(name, WorkUsage()), tree, self._ledger.clock(), fair_shares.get(name)
                )
                status = msgspec.structs.replace(status, guaranteed=guaranteed(name) or None)
                status = msgspec.structs.replace(status, budget=_budget(tree, account, budgets))
                if status != account.status:
                    own = {
                        "fairShare": _json(status.fair_share),
                        "guaranteed": msgspec.to_builtins(status.guaranteed),
                    }
                    own["budget"] = _amounts_json(status.budget)
                    await self._patch(name, status, own)
            except Exception as error:
                self._names.fail(name, error)


def _budget(
    tree: AccountTree, account: FluxAccount, budgets: Mapping[str, BudgetStatus]
) -> BudgetStatus | None:
    """Return what to show; until the first cycle of a leader has counted, what is shown."""
    known = tree.accounts.get(account.metadata.name)
    return (
        budgets.get(account.metadata.name, account.status.budget)
        if known is not None and known.budget is not None
        else None
    )


def _amounts_json(shown: BudgetStatus | None) -> dict[str, Any] | None:
    """Return every figure, also zeros: what is left of a budget is read by programs."""
    if shown is None:
        return None
    amounts = [{name: getattr(each, name) for name in each.__struct_fields__} for each in shown.amounts or ()]
    return {"start": shown.start, "end": shown.end, "amounts": amounts}


def _json(shown: FairShareStatus | None) -> dict[str, Any] | None:
    """Return every field, also zeros, and None for a factor that there is not:
    a merge patch would leave the old one.
    """
    if shown is None:
        return None
    users = [{"user": each.user, "use": each.use, "factor": each.factor} for each in shown.users or ()]
    return {"share": shown.share, "use": shown.use, "factor": shown.factor, "users": users or None}
