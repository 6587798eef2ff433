"""How many workloads an account may have at once, waiting and running: those beyond that wait outside of the
plan.

Admission cannot refuse them as Slurm does: it knows one object and no counts, and a CronJob or JobSet would
create what was refused again and again. So they are accepted and wait with the reason ``AccountLimit``. They
are not matched, hold no reservation and get no estimate, until those that were submitted before them have
ended. Work that holds nodes always counts first, then what waits in the order in which it was submitted,
whatever its priority: a limit that a higher priority could pass would bound nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.accounts import Account, AccountTree
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limit_scopes import OverLimit

__all__ = ["beyond_submitted"]


def _has_nodes(workload: Workload) -> bool:
    return workload.state is not State.PENDING


def beyond_submitted(
    workloads: Iterable[Workload], accounts: AccountTree, holds: Callable[[Workload], bool] = _has_nodes
) -> dict[WorkloadId, OverLimit]:
    """Return which pending workloads are beyond what their account, or one above it, may have at once.

    Parameters
    ----------
    workloads
        All that have not ended.
    accounts
        All accounts. Without limits on submitted work this costs nothing.
    holds
        Returns whether a workload has nodes.
    """
    if not any(each.submitted is not None for each in accounts.accounts.values()):
        return {}
    limiting: dict[str, tuple[Account, ...]] = {}
    counted: Counter[str] = Counter()
    waiting: list[Workload] = []
    for workload in workloads:
        limits = limiting.get(workload.account)
        if limits is None:
            limits = limiting[workload.account] = tuple(
                each for each in accounts.limiting(workload.account) if each.submitted is not None
            )
        if limits and not holds(workload):
            waiting.append(workload)
        else:
            counted.update(each.name for each in limits)
    waiting.sort(key=lambda workload: (workload.submitted_at, workload.id))
    beyond: dict[WorkloadId, OverLimit] = {}
    for workload in waiting:
        limits = limiting[workload.account]
        full = next(
            (each for each in limits if each.submitted is not None and counted[each.name] >= each.submitted),
            None,
        )
        if full is None:
            counted.update(each.name for each in limits)
        else:
            beyond[workload.id] = _over(full, counted[full.name])
    return beyond


def _over(account: Account, before: int) -> OverLimit:
    message = (
        f"the account {account.name!r} may have {account.submitted} workloads submitted at once, and "
        f"{before} were submitted before this"
    )
    return OverLimit((Reason.ACCOUNT_LIMIT, account.name, None), message)
