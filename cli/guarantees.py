"""What is guaranteed to the account of a workload, for ``kubectl fluxqueue explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.listing import list_accounts
from fluxqueue.queue.model.accounts import account_tree

__all__ = ["guarantees_of"]


def guarantees_of(client: ApiClient, jobs: Iterable[FluxJob]) -> Callable[[FluxJob], str]:
    """Return a function that says what is guaranteed to the account of one of these FluxJobs; nothing if the
    accounts may not be read.

    The guarantee of work is that of the nearest account on its way up that has one, as in
    `fluxqueue.queue.scheduling.limits.guarantees`.
    """
    accounts: list[FluxAccount] = []
    if any(job.status.account for job in jobs):
        try:
            accounts = list_accounts(client)
        except ClusterError:  # whoever may not read accounts still gets the rest of the explanation
            accounts = []
    tree = account_tree(accounts)
    shown = {
        account.metadata.name: account.status.guaranteed for account in accounts if account.status.guaranteed
    }

    def of(job: FluxJob) -> str:
        nearest = next((name for name in tree.path_of(job.status.account) if name in shown), "")
        parts = (
            f"{each.guaranteed} {each.name} (used {each.used}, borrowed {each.borrowed})"
            for each in shown.get(nearest) or ()
        )
        return f"to {nearest!r}: {', '.join(parts)}" if nearest else ""

    return of
