"""The FluxAccount: what a group of people may use of the cluster, as an administrator writes it.

FluxAccounts are cluster-scoped and form trees by ``spec.parent``. The work of a namespace belongs to the account that names the namespace.
A limit holds for an account together with all accounts below it. A limit that is not set does not apply. ``spec.shares`` says what part
of the use of its parent it is to have.
"""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.workstatus import WorkStatus

__all__ = ["AccountLimits", "FairShareStatus", "FluxAccount", "FluxAccountSpec", "FluxAccountStatus"]


class AccountLimits(PartialObject, frozen=True):
    """What the workloads of an account may use at the same time; None is no limit.

    ``submitted`` counts workloads that wait or have nodes, ``running`` those that have nodes, ``nodes`` counts each node once,
    ``resources`` are quantities by Kubernetes resource name (``cpu``, ``memory``, ``nvidia.com/gpu``), as requested.
    """

    submitted: int | None = None
    running: int | None = None
    nodes: int | None = None
    resources: dict[str, str | int | float] | None = None


class FluxAccountSpec(PartialObject, frozen=True):
    """The place of an account in its tree, the namespaces that it has, its limits, and its shares (None: 1)."""

    parent: str | None = None
    namespaces: list[str] | None = None
    limits: AccountLimits | None = None
    shares: int | None = None


class FairShareStatus(PartialObject, frozen=True):
    """The fair share of an account.

    ``share`` is the part of its parent's use that it is to have, ``use`` what it and the accounts below it used (in core-seconds, if the
    installation weighs nothing else), halved with time, and ``factor`` the fair-share factor of its own work, from 0 to 1.
    """

    share: float = 0.0
    use: int = 0
    factor: float | None = None


class FluxAccountStatus(WorkStatus, frozen=True):
    """How many workloads of the account and of those below it wait and run, how many nodes they use, and its fair share."""

    fair_share: FairShareStatus | None = None


class FluxAccount(PartialObject, frozen=True):
    """A FluxAccount."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxAccountSpec = FluxAccountSpec()
    status: FluxAccountStatus = FluxAccountStatus()
