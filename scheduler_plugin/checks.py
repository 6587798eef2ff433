"""Whether the nodes of released pods can take them now: all checks of kube-scheduler, for one node each.

The match decided on the graph some time ago. Before binding, the scheduler checks the objects in their
current state. The members of a gang are checked in one step and in their order, each as if those before it
were bound already. Foreign pods for which kube-scheduler has made room (``status.nominatedNodeName``) count
as if they were on their node, against pods of equal or lower priority. kube-scheduler counts them the same
way.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import Key
from fluxqueue.queue.cluster.storage import claims_used
from fluxqueue.queue.noderules.node_checks import obstacle
from fluxqueue.queue.noderules.volumes import Storage
from fluxqueue.scheduler_plugin.assumedstorage import AssumedStorage
from fluxqueue.scheduler_plugin.interpod_rules import InterPodCheck, InterPodRules
from fluxqueue.scheduler_plugin.volumechecks import claim_keys, full_driver, plan_claims

_CLAIMS_DEVICES: Final = (
    "the pod claims devices (spec.resourceClaims), which only the stock scheduler can allocate"
)

__all__ = ["ClusterView", "FitResult", "FitStatus", "check_gang"]


class FitStatus(enum.StrEnum):
    """The result of a check.
    ``WAITS`` means that the node is not the obstacle: something that is in progress has to finish.
    """

    FITS = "fits"
    REFUSED = "refused"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class FitResult:
    """Whether a pod fits on its node now.

    Attributes
    ----------
    status
        The result.
    message
        One sentence that names the obstacle; empty if the pod fits.
    """

    status: FitStatus = FitStatus.FITS
    message: str = ""


class ClusterView(Protocol):
    """The state of the cluster that the checks read."""

    @property
    def storage(self) -> Storage:
        """Claims, volumes and StorageClasses."""

    def node(self, name: str) -> Node | None:
        """Return a node by its name."""

    def pods_on(self, node: str) -> Iterable[Pod]:
        """Return the pods bound to a node or assumed to be, without those that have ended."""

    @property
    def interpod(self) -> InterPodRules:
        """Inter-pod affinity and topology spread."""

    def nominated_to(self, node: str) -> Iterable[Pod]:
        """Return unbound foreign pods for which kube-scheduler keeps room on a node."""


FITS = FitResult()


def check_gang(members: Sequence[tuple[Pod, str]], cluster: ClusterView) -> dict[str, FitResult]:
    """Check pods that are to be bound together.

    Parameters
    ----------
    members
        Each pod and the name of its node. Where a node cannot take all, the order decides which pods are
        refused.
    cluster
        The current state; the members may be counted in it or not.

    Returns
    -------
    dict
        A result for the uid of each pod. A pod that is refused takes no room from those after it.
    """
    uids = {pod.metadata.uid for pod, _ in members}
    storage = AssumedStorage(cluster.storage)
    present: dict[str, list[Pod]] = {}
    exclusive: set[Key] = set()
    results: dict[str, FitResult] = {}
    with cluster.interpod.checking(members) as interpod:
        for pod, node in members:
            if node not in present:
                present[node] = [each for each in cluster.pods_on(node) if each.metadata.uid not in uids]
            result = results[pod.metadata.uid] = _Check(
                cluster, storage, interpod, present[node], exclusive
            ).of(pod, node)
            if result.status is not FitStatus.REFUSED:
                present[node].append(pod)
                interpod.assume(pod)
    return results


@dataclass(frozen=True, slots=True)
class _Check:
    """A check of one node: the pods that count on it, and the claims for a single pod that earlier members
    use.
    """

    cluster: ClusterView
    storage: AssumedStorage
    interpod: InterPodCheck
    present: Sequence[Pod]
    exclusive: set[Key]

    def of(self, pod: Pod, name: str) -> FitResult:
        node, spec = self.cluster.node(name), pod.spec
        if node is None:
            return _refused(f"node {name} does not exist")
        if spec.resource_claims:
            return FitResult(
                FitStatus.WAITS,
                f"{_CLAIMS_DEVICES}: label it {names.SCHEDULER_LABEL}={SchedulerName.STOCK} and create it "
                "again",
            )
        priority = spec.priority or 0
        rivals = [
            each
            for each in self.cluster.nominated_to(name)
            if (each.spec.priority or 0) >= priority and each.metadata.uid != pod.metadata.uid
        ]
        counted = [*self.present, *rivals]
        if why := obstacle(node, spec, counted, lagging=True):
            return _refused(why)
        result = self._volumes(pod, node, counted)
        if result.status is FitStatus.FITS and (why := self.interpod.violation(pod, node, rivals)):
            return _refused(why)
        return result

    def _volumes(self, pod: Pod, node: Node, counted: Sequence[Pod]) -> FitResult:
        """Check the claims of a pod against its node.
        What they will take counts for the members that come after.
        """
        if not claim_keys(pod):
            return FITS
        if claim := self._exclusive_claim_in_use(pod):
            return FitResult(
                FitStatus.WAITS,
                f"PersistentVolumeClaim {claim} is for one pod (ReadWriteOncePod), and another one uses it",
            )
        if driver := full_driver(pod, node.metadata.name, counted, self.storage):
            return _refused(f"node {node.metadata.name} takes no more volumes of {driver}")
        plan = plan_claims(pod, node, self.storage)
        if plan.refused:
            return _refused(plan.refused)
        if plan.waits:
            return FitResult(FitStatus.WAITS, plan.waits)
        for free, volume in plan.bindings:
            self.storage.bind(free, volume)
        for free in plan.provisions:
            self.storage.provision(free, node.metadata.name)
        return FITS

    def _exclusive_claim_in_use(self, pod: Pod) -> str:
        """Return a claim of the pod that only one pod may use and another one uses;
        empty if there is none.
        """
        own = [
            key
            for key in claims_used(pod.metadata.namespace, pod.spec)
            if (claim := self.storage.claim(*key)) and claim.for_one_pod
        ]
        for key in own:
            if key in self.exclusive or any(
                user.metadata.uid != pod.metadata.uid for user in self.cluster.interpod.users_of(key)
            ):
                return "/".join(key)
        self.exclusive.update(own)
        return ""


def _refused(why: str) -> FitResult:
    return FitResult(FitStatus.REFUSED, why)
