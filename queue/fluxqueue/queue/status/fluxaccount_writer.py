"""Writes the status of FluxAccounts: at most every few seconds, only if it differs, and from what the leader knows."""

from __future__ import annotations

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.kinds import FLUXACCOUNTS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.status.fluxaccount_status import account_status, usage_by_account
from fluxqueue.queue.status.usage import WorkUsage
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FluxAccountWriter"]


class FluxAccountWriter(WorkStatusWriter[FluxAccount]):
    """Keeps the status of FluxAccounts current. Without FluxAccounts it does nothing.

    Parameters
    ----------
    api, caches, ledger
        Where the status is written, which FluxAccounts exist, and the queue.
    recorder
        For Events on accounts whose status cannot be written.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder | None = None) -> None:
        super().__init__(FLUXACCOUNTS, caches.fluxaccounts, api, ledger, recorder)
        self._caches = caches

    async def _write(self, names: list[str]) -> None:
        usage = usage_by_account(self._ledger.all(), self._ledger.live(), self._caches.accounts.tree)
        for name in names:
            account = self._objects.get("", name)
            if account is None:
                continue
            try:
                status = account_status(account, usage.get(name, WorkUsage()), self._caches.accounts.tree, self._ledger.clock())
                if status != account.status:
                    await self._patch(name, status)
            except Exception as error:
                self._names.fail(name, error)
