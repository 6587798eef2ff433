"""The FluxAccount: what a group of people may use of the cluster, as an administrator writes it.

FluxAccounts are cluster-scoped and form trees by ``spec.parent``. The work of a namespace belongs to the account that names the namespace.
A limit holds for an account together with all accounts below it. A limit that is not set does not apply.
"""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.workstatus import WorkStatus

__all__ = ["AccountLimits", "FluxAccount", "FluxAccountSpec", "FluxAccountStatus"]


class AccountLimits(PartialObject, frozen=True):
    """What the workloads of an account may use at the same time; None is no limit.

    ``running`` counts workloads that have nodes, ``nodes`` counts each node once, ``resources`` are quantities by Kubernetes resource name
    (``cpu``, ``memory``, ``nvidia.com/gpu``), as requested.
    """

    running: int | None = None
    nodes: int | None = None
    resources: dict[str, str | int | float] | None = None


class FluxAccountSpec(PartialObject, frozen=True):
    """The place of an account in its tree, the namespaces that it has, and its limits."""

    parent: str | None = None
    namespaces: list[str] | None = None
    limits: AccountLimits | None = None


class FluxAccountStatus(WorkStatus, frozen=True):
    """How many workloads of the account and of those below it wait and run, and how many nodes they use."""


class FluxAccount(PartialObject, frozen=True):
    """A FluxAccount."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxAccountSpec = FluxAccountSpec()
    status: FluxAccountStatus = FluxAccountStatus()
