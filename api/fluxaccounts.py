"""The FluxAccount: what a group of people may use of the cluster, as an administrator writes it.

FluxAccounts are cluster-scoped and form trees by ``spec.parent``. The work of a namespace belongs to the
account that names the namespace. A limit holds for an account together with all accounts below it. A limit
that is not set does not apply. ``spec.shares`` says what part of the use of its parent it is to have.
"""

from __future__ import annotations

from fluxqueue.api.formatting import format_limits
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.workstatus import WorkStatus

__all__ = [
    "AccountBudget",
    "AccountGuarantee",
    "AccountLimits",
    "AccountUserLimits",
    "AccountWorkloadLimits",
    "BudgetAmount",
    "BudgetStatus",
    "FairShareStatus",
    "FluxAccount",
    "FluxAccountSpec",
    "FluxAccountStatus",
    "GuaranteedStatus",
    "UserShareStatus",
]


class AccountWorkloadLimits(PartialObject, frozen=True):
    """What one workload of an account may have, all its pods together:
    nodes, and quantities by resource name; None is no limit.
    """

    nodes: int | None = None
    resources: dict[str, str | int | float] | None = None

    @property
    def words(self) -> str:
        """The quantities, for people."""
        return format_limits([("nodes", self.nodes)], self.resources)


class AccountUserLimits(PartialObject, frozen=True):
    """What each user of an account may use at the same time; None is no limit."""

    running: int | None = None
    nodes: int | None = None
    resources: dict[str, str | int | float] | None = None

    @property
    def words(self) -> str:
        """The quantities, for people."""
        return format_limits([("running", self.running), ("nodes", self.nodes)], self.resources)


class AccountLimits(AccountUserLimits, frozen=True):
    """What the workloads of an account may use at the same time; None is no limit.

    ``submitted`` counts workloads that wait or have nodes, ``running`` those that have nodes, ``nodes``
    counts each node once, ``resources`` are quantities by Kubernetes resource name (``cpu``, ``memory``,
    ``nvidia.com/gpu``), as requested.
    """

    submitted: int | None = None
    per_user: AccountUserLimits | None = None
    per_workload: AccountWorkloadLimits | None = None


class AccountGuarantee(PartialObject, frozen=True):
    """What an account may have whenever it has work for it; others may use it meanwhile.
    None, and what is not named, is not guaranteed.
    """

    nodes: int | None = None
    resources: dict[str, str | int | float] | None = None


class AccountBudget(PartialObject, frozen=True):
    """What the workloads of an account may use in each period; what is not named has no budget.

    ``period`` is ``month``, ``quarter``, ``year`` or days such as ``30d``, ``start`` a day on which a period
    begins (UTC). ``nodeHours`` counts each node of an allocation, ``resourceHours`` are quantities for an
    hour by Kubernetes resource name.
    """

    period: str = "month"
    start: str | None = None
    node_hours: int | None = None
    resource_hours: dict[str, str | int | float] | None = None


class FluxAccountSpec(PartialObject, frozen=True):
    """The place of an account in its tree, its namespaces, limits, guarantee, budget, and its shares (None:
    1).

    With ``share_among_users``, its own work is ordered by what each of its users used.
    """

    parent: str | None = None
    namespaces: list[str] | None = None
    limits: AccountLimits | None = None
    guaranteed: AccountGuarantee | None = None
    budget: AccountBudget | None = None
    shares: int | None = None
    share_among_users: bool = False


class UserShareStatus(PartialObject, frozen=True):
    """What a user used in an account, as the account's ``use``,
    and the fair-share factor of the user's work there.
    """

    user: str = ""
    use: int = 0
    factor: float = 0.0


class FairShareStatus(PartialObject, frozen=True):
    """The fair share of an account.

    ``share`` is the part of its parent's use that it is to have, ``use`` what it and the accounts below it
    used (in core-seconds, if the installation weighs nothing else), halved with time, and ``factor`` the
    fair-share factor of its own work, from 0 to 1. ``users`` are those who used most, if its work is shared
    among users; all others have ``factor``.
    """

    share: float = 0.0
    use: int = 0
    factor: float | None = None
    users: list[UserShareStatus] | None = None


class GuaranteedStatus(PartialObject, frozen=True):
    """How much of ``nodes`` or of a resource is guaranteed, used by the account and those below it,
    and used beyond the guarantee.
    """

    name: str = ""
    guaranteed: str = ""
    used: str = ""
    borrowed: str = ""


class BudgetAmount(PartialObject, frozen=True):
    """The hours of ``nodes`` or of a resource: in the budget, used in this period,
    still to be used by running work, and left.
    """

    name: str = ""
    hours: float = 0.0
    used: float = 0.0
    promised: float = 0.0
    left: float = 0.0


class BudgetStatus(PartialObject, frozen=True):
    """The present period of a budget (``start`` and ``end`` as times), and what is left in it."""

    start: str = ""
    end: str = ""
    amounts: list[BudgetAmount] | None = None


class FluxAccountStatus(WorkStatus, frozen=True):
    """How many workloads of the account and of those below it wait and run, their nodes, its fair share,
    guarantee and budget.
    """

    fair_share: FairShareStatus | None = None
    guaranteed: list[GuaranteedStatus] | None = None
    budget: BudgetStatus | None = None


class FluxAccount(PartialObject, frozen=True):
    """A FluxAccount."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxAccountSpec = FluxAccountSpec()
    status: FluxAccountStatus = FluxAccountStatus()
