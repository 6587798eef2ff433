"""What is guaranteed to the account of a workload, for ``kubectl fluxqueue explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fluxqueue.api.fluxaccounts import FluxAccount, GuaranteedStatus
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.listing import list_accounts
from fluxqueue.queue.model.accounts import account_tree

__all__ = ["guarantees_of"]

GuaranteeOf = Callable[[FluxJob], tuple[str, Sequence[GuaranteedStatus]]]


def guarantees_of(client: ApiClient, jobs: Iterable[FluxJob]) -> GuaranteeOf:
    """Return what is guaranteed to the account of each of these FluxJobs; nothing where the accounts may not be read.

    The guarantee of work is that of the nearest account on its way up that has one, as in `fluxqueue.queue.scheduling.guarantees`.
    """
    accounts: list[FluxAccount] = []
    if any(job.status.account for job in jobs):
        try:
            accounts = list_accounts(client)
        except ClusterError:  # whoever may not read accounts still gets the rest of the explanation
            accounts = []
    tree = account_tree(accounts)
    shown = {account.metadata.name: account.status.guaranteed for account in accounts if account.status.guaranteed}

    def of(job: FluxJob) -> tuple[str, Sequence[GuaranteedStatus]]:
        nearest = next((name for name in tree.path_of(job.status.account) if name in shown), "")
        return nearest, shown.get(nearest) or ()

    return of
