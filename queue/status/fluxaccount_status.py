"""What a FluxAccount's status shows: how much work it has with all accounts below it, its fair share, and
whether its spec takes effect.

The condition ``Ready`` is false while something in the spec cannot take effect. Its message has a sentence
for each such part.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fluxqueue.api.fluxaccounts import FairShareStatus, FluxAccount, FluxAccountStatus, UserShareStatus
from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.conditions import dated
from fluxqueue.queue.model.fair_share import FairShare
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.status.usage import WorkUsage, usage_by

__all__ = ["account_status", "usage_by_account"]

_LONGEST_MESSAGE = 1_000
_DECIMALS = 4
_DIGITS = 3
_MOST_USERS = 100
_LONGEST_USER = 256
"""Users that are shown; the CRD has the same bounds."""


def usage_by_account(
    workloads: Iterable[Workload], live: Iterable[tuple[Workload, Allocation]], tree: AccountTree
) -> dict[str, WorkUsage]:
    """Count by account; work counts for its account and for each one above it,
    and a node once for each of them.
    """
    return usage_by(lambda workload: tree.path_of(workload.account), workloads, live)


def account_status(
    account: FluxAccount, usage: WorkUsage, tree: AccountTree, now: datetime, fair: FairShare | None = None
) -> FluxAccountStatus:
    """Return the status that a FluxAccount should show.

    Parameters
    ----------
    account
        As it is now, with its present status.
    usage
        Of its workloads and of those of the accounts below it.
    tree
        All accounts.
    now
        Transition time of a condition that changes.
    fair
        Its fair share; None: not computed yet, so that what is shown stays.
    """
    return FluxAccountStatus(
        observed_generation=account.metadata.generation,
        pending=usage.pending,
        running=usage.running,
        nodes_in_use=usage.nodes,
        conditions=dated((_ready(account, tree),), account.status.conditions, now),
        fair_share=_shown(fair) if fair is not None else account.status.fair_share,
    )


def _shown(fair: FairShare) -> FairShareStatus:
    """Round the figures: use fades at any time, and is worth a write when it changed by some thousandths."""
    most = sorted(fair.users.items(), key=lambda each: (-each[1].use, each[0]))
    shown = [
        UserShareStatus(user, _rounded(each.use), each.factor)
        for user, each in most
        if len(user) <= _LONGEST_USER
    ][:_MOST_USERS]
    return FairShareStatus(
        share=round(fair.share, _DECIMALS), use=_rounded(fair.use), factor=fair.factor, users=shown or None
    )


def _rounded(use: float) -> int:
    return int(float(f"{use:.{_DIGITS}g}"))


def _ready(account: FluxAccount, tree: AccountTree) -> ObjectCondition:
    problems = tree.problems.get(account.metadata.name, ())
    if not problems:
        return ObjectCondition(
            type="Ready", status="True", reason="Ready", message="its spec takes effect as it is written"
        )
    message = "; ".join(problem.message for problem in problems)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    return ObjectCondition(type="Ready", status="False", reason=problems[0].reason, message=message)
