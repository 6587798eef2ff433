"""The reasons of work that the present nodes could never hold.

``Unsatisfiable`` replaces a reason that would raise false hopes. Work that would fit a larger cluster waits
for nodes instead. The message itself is the matcher's (`fluxqueue.fluxion.match.explain`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Provision
from fluxqueue.api.formatting import format_graph_amount
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.claimed_devices import claimed_devices
from fluxqueue.queue.model.extra_requests import extra_requests_in_words
from fluxqueue.queue.model.jobspecs import extra_requests_in, sizes_in
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.reasons.satisfiability import SatisfiabilityCache
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["NO_PRESENT_NODE", "UnsatisfiableReasons"]

NO_PRESENT_NODE = "no present node could hold it; "
"""How the reason of work begins that would fit nodes which somebody adds."""

_WAITING = (
    frozenset({Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION, Reason.RESERVATION}) | LIMIT_REASONS
)
_SHORT = (Reason.UNSATISFIABLE, Reason.WAITING_FOR_NODES)


class UnsatisfiableReasons:
    """Corrects the reasons of requests that fit no present node.

    Parameters
    ----------
    ledger
        Source of the workloads.
    graph
        Sizes of its nodes, and what DaemonSets take of them.
    satisfiability
        Which requests fit.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, satisfiability: SatisfiabilityCache) -> None:
        self._ledger = ledger
        self._graph = graph
        self._satisfiability = satisfiability
        self._sizes_version = -1
        self._largest: dict[str, int] = {}
        self._daemons: Mapping[str, int] = {}

    def refine(
        self, changes: Sequence[ReasonChange], provisions: Mapping[str, Provision]
    ) -> list[ReasonChange]:
        """Return the changes with ``Unsatisfiable``, or with the nodes to add, where a request fits no
        present node.

        Parameters
        ----------
        changes
            Reasons of the cycle so far.
        provisions
            What each queue does for work that waits for nodes to be added.
        """
        refined = [self._refined(change, provisions) for change in changes]
        workloads = [self._ledger.get(change.workload) for change in refined]
        return [
            _with_devices(_with_extra_requests(change, row), row)
            for change, row in zip(refined, workloads, strict=True)
        ]

    def _refined(self, change: ReasonChange, provisions: Mapping[str, Provision]) -> ReasonChange:
        workload = self._ledger.get(change.workload)
        never = self._satisfiability.unsatisfiable.get(workload.shape) if workload is not None else None
        if (
            workload is None
            or never is None
            or (change.reason not in _WAITING and change.reason is not Reason.UNSATISFIABLE)
        ):
            return change
        if shapes := self._satisfiability.needed_shapes(workload.shape):
            if change.reason in LIMIT_REASONS:
                return change  # no nodes are added for work over a limit
            return _waits_for_growth(
                change, shapes, requested=provisions.get(workload.queue, Provision.NONE) is not Provision.NONE
            )
        if change.reason in _WAITING:
            change = replace(change, reason=Reason.UNSATISFIABLE, message=never.reason)
        return self._with_daemons(change, workload)

    def _with_daemons(self, change: ReasonChange, workload: Workload) -> ReasonChange:
        """Add what DaemonSets take of a node, if a pod would fit without them."""
        if self._sizes_version != self._graph.version:
            self._sizes_version, self._largest = self._graph.version, {}
            for kind, total in (
                (pool.type, pool.total) for node in self._graph.nodes.values() for pool in node.pools
            ):
                self._largest[kind] = max(self._largest.get(kind, 0), total)
            self._daemons = self._graph.largest_daemon_use()
        short = {
            kind
            for members in sizes_in(workload.jobspec).values()
            for kind, amount in members.items()
            if 0 < amount - self._largest.get(kind, 0) <= self._daemons.get(kind, 0)
        }
        if not short:
            return change
        taken = " and ".join(format_graph_amount(kind, self._daemons[kind]) for kind in sorted(short))
        return replace(change, message=f"{change.message}; the pods of DaemonSets take {taken} of a node")


def _with_extra_requests(change: ReasonChange, workload: Workload | None) -> ReasonChange:
    """Add what the pods ask for beyond their template, where that may be what does not fit."""
    extra = extra_requests_in(workload.jobspec) if workload is not None else {}
    if not extra or change.reason not in _SHORT:
        return change
    return replace(change, message=f"{change.message}; {extra_requests_in_words(extra)}")


def _with_devices(change: ReasonChange, workload: Workload | None) -> ReasonChange:
    """Add the devices that the pods claim, where the message does not say that they are what is short."""
    devices = claimed_devices(workload.jobspec) if workload is not None and change.reason in _SHORT else ""
    if not devices or "devices of class" in change.message:
        return change
    return replace(change, message=f"{change.message}; it claims {devices}")


def _waits_for_growth(change: ReasonChange, shapes: tuple[str, ...], *, requested: bool) -> ReasonChange:
    """The reason of work that would fit nodes of these shapes."""
    fits = f"no present node could hold it; with more nodes of shape {' and '.join(shapes)} it would fit"
    if requested:
        return replace(
            change, reason=Reason.PROVISIONING, message=f"{fits}: they are requested from the autoscaler"
        )
    text = f"{fits}: it starts when they are added (the queue requests none: spec.provision of its FluxQueue)"
    return replace(change, reason=Reason.WAITING_FOR_NODES, message=text)
