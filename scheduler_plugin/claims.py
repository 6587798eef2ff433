"""Prepare the claims of a pod for its node before it is bound there.

A claim of a StorageClass with ``WaitForFirstConsumer`` gets its volume only when a scheduler has chosen the
node. For pods of kube-scheduler that is kube-scheduler; for ours it is this module. There are two ways, each
of one write. An existing free volume gets the claim as its ``claimRef``, and the volume controller binds
both. Otherwise the claim gets ``volume.kubernetes.io/selected-node``, and its provisioner makes a volume
there. The pod is bound once the claim has its volume.

Each write contains all the information and is conditional on the state on which it was decided. So a process
that finds the objects later (after a crash, or as the next leader) continues from there: a volume that names
the claim is the choice, and a claim with the annotation is being provisioned. A provisioner that cannot make
the volume on that node removes the annotation. The leader that wrote it sees that and refuses the node. A new
leader does not know that it was written, writes it once more, and then sees it removed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import structlog

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from fluxqueue.kube.errors import Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import CLAIMS, NODES, VOLUMES
from fluxqueue.kube.transport import Api
from fluxqueue.queue.noderules.volumes import Storage
from fluxqueue.scheduler_plugin.assumedstorage import AssumedStorage
from fluxqueue.scheduler_plugin.checks import FITS, FitResult, FitStatus
from fluxqueue.scheduler_plugin.volumechecks import ClaimPlan, claim_keys, plan_claims

__all__ = ["ClaimBinder"]

CHOICES: Final = 4
"""Volumes that are tried for a claim in one attempt if other claims take them first; each is one write."""
REMEMBERED: Final = 10_000
"""Number of claims for which the node of the last request is kept."""

log: Final = structlog.get_logger(__name__)


class _Unwritable(Exception):
    """The API server refuses the write; the message is its sentence."""


class ClaimBinder:
    """Binds volumes to the claims of pods, or requests them.

    Parameters
    ----------
    api
        Changes claims and volumes, and reads the node of a pod whose claims have no volume yet.
    storage
        Claims, volumes and StorageClasses.
    """

    def __init__(self, api: Api, storage: Storage) -> None:
        self._api = api
        self._storage = AssumedStorage(storage)
        self._requested: OrderedDict[str, str] = OrderedDict()

    async def prepare(self, pod: Pod, node: str) -> FitResult:
        """Prepare the claims of a pod for its node, as far as that is possible now.

        Parameters
        ----------
        pod
            Not bound yet.
        node
            The name of the node it is to be bound to.

        Returns
        -------
        Finding
            FITS when every claim has its volume. WAITS while a volume is made or bound; the message names the
            claim, and the caller tries again when a claim or a volume changes. REFUSED if this node cannot be
            used.

        Raises
        ------
        ApiError
            The API server is unreachable or busy; try again.
        """
        claims = [self._storage.claim(*key) for key in claim_keys(pod)]
        if all(claim is not None and claim.bound for claim in claims):
            return FITS
        for claim in claims:
            if claim is not None and (why := self._abandoned(claim, node)):
                return FitResult(FitStatus.REFUSED, why)
        try:
            node_object = await self._api.get(NODES, node)
        except NotFound:
            return FitResult(FitStatus.REFUSED, f"node {node} does not exist")
        try:
            return await self._carry_out(pod, node_object)
        except _Unwritable as error:
            return FitResult(FitStatus.WAITS, str(error))

    def _abandoned(self, claim: PersistentVolumeClaim, node: str) -> str:
        """Return why a claim gets no volume on a node: its provisioner removed the node that we had written.
        Empty otherwise.
        """
        uid = claim.metadata.uid
        if claim.bound or claim.selected_node:
            return ""
        requested = self._requested.pop(uid, None)
        if requested != node:
            return ""
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        log.info("claim.provisioning_abandoned", claim=name, uid=uid, node=node)
        return (
            f"no volume could be made for PersistentVolumeClaim {name} on node {node}: its provisioner "
            "removed the node from the claim"
        )

    async def _carry_out(self, pod: Pod, node: Node) -> FitResult:
        lost: set[str] = set()
        for _ in range(CHOICES):
            plan = plan_claims(pod, node, self._storage, lost)
            if plan.refused:
                return FitResult(FitStatus.REFUSED, plan.refused)
            if plan.waits:
                return FitResult(FitStatus.WAITS, plan.waits)
            taken_by_others = {
                volume.metadata.name for claim, volume in plan.bindings if not await self._bind(claim, volume)
            }
            if not taken_by_others:
                for claim in plan.provisions:
                    await self._provision(claim, node.metadata.name)
                return FitResult(FitStatus.WAITS, _awaited(plan, node)) if not plan.done else FITS
            lost |= taken_by_others
        return FitResult(
            FitStatus.WAITS,
            f"other claims took the volumes that pod {pod.metadata.name} could use: it is checked again",
        )

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
        """Write a claim into its volume; return False if the volume has changed meanwhile."""
        kept = volume.kept_for(claim)
        if kept and volume.spec.claim_ref is not None and volume.spec.claim_ref.uid:
            return True
        meta, owner = volume.metadata, claim.metadata
        reference = {
            "apiVersion": "v1",
            "kind": CLAIMS.kind,
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
        }
        metadata: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        if not kept:
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        self._storage.bind(claim, volume)
        try:
            await self._api.patch(VOLUMES, meta.name, {"metadata": metadata, "spec": {"claimRef": reference}})
        except BaseException as error:
            self._storage.drop(volume)
            if isinstance(error, Conflict | NotFound):
                return False
            if isinstance(error, Forbidden | Invalid):
                raise _Unwritable(error.message) from None
            raise
        log.info("volume.chosen", volume=meta.name, claim=f"{owner.namespace}/{owner.name}", uid=owner.uid)
        return True

    async def _provision(self, claim: PersistentVolumeClaim, node: str) -> None:
        """Request a volume for a claim on a node.
        If the claim has changed meanwhile, its change triggers the next check.
        """
        meta = claim.metadata
        body = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {SELECTED_NODE: node},
            }
        }
        try:
            await self._api.patch(CLAIMS, meta.name, body, namespace=meta.namespace)
        except (Conflict, NotFound):
            return
        except (Forbidden, Invalid) as error:
            raise _Unwritable(error.message) from None
        self._storage.provision(claim, node)
        self._requested[meta.uid] = node
        self._requested.move_to_end(meta.uid)
        while len(self._requested) > REMEMBERED:
            self._requested.popitem(last=False)
        log.info("claim.node_selected", claim=f"{meta.namespace}/{meta.name}", uid=meta.uid, node=node)


def _awaited(plan: ClaimPlan, node: Node) -> str:
    """Return a sentence about what is in progress."""
    if plan.bindings:
        claim, volume = plan.bindings[0]
        return f"{_described(claim)} is being bound to the volume {volume.metadata.name}"
    claim = next(iter((*plan.provisions, *plan.provisioning)))
    return f"the volume of {_described(claim)} is being made for node {node.metadata.name}"


def _described(claim: PersistentVolumeClaim) -> str:
    return f"{CLAIMS.kind} {claim.metadata.namespace}/{claim.metadata.name}"
