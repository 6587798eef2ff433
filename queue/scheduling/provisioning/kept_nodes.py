"""Keeps autoscalers from taking away nodes that work is about to use.

A node that is reserved, or that was matched a moment ago, looks empty to an autoscaler. For work of a queue
with ``provision: pods``, each such node has a pod in the namespace of the queue that prefers this node and
requests nothing. It is never bound, and Karpenter takes no node that it expects a pod on. Karpenter ignores
pods that require one node by its host name, and follows a preference while it can. The pod goes when the node
has the pods of the work, or is not reserved any more (docs/decisions, 0062).
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Provision
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.scheduling.provisioning.room_pods import (
    ask_by_pod,
    asks,
    delete_pod,
    in_parallel,
    unbound_pod,
)
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["KeptNodes"]

log = structlog.get_logger()

_MOST: Final = 1_000
_PAUSE_S: Final = 2.0
_DIGEST: Final = 16


class KeptNodes:
    """Keeps a pod for each node that work is about to use.

    Parameters
    ----------
    api, caches, ledger
        The API server, the nodes and queues, and the reservations and matches.
    pause_s
        Between two looks at them, in seconds.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, pause_s: float = _PAUSE_S) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._pause_s = pause_s
        self._kept: dict[str, str] = {}
        """Pod of each node, by the node's name."""
        self._unsure = True

    def resync(self) -> None:
        """Compare the pods with those in the cluster at the next look."""
        self._unsure = True

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._look()
            except ApiError as error:
                self._unsure = True
                log.warning("kept_nodes.failed", error=str(error))
            await asyncio.sleep(self._pause_s)

    async def _look(self) -> None:
        wanted = self._wanted()
        if not self._unsure and wanted == self._kept:
            return
        self._unsure = False
        namespace, now = self._caches.own_namespace, self._ledger.wall()
        present = {
            pod.metadata.name: pod
            for pod in await self._api.list(PODS, namespace, label_selector=names.KEEPS_LABEL)
        }
        missing = {
            name: node for node, name in wanted.items() if name not in present or not asks(present[name])
        }
        message = "work that waits has this node reserved"
        await in_parallel(
            ask_by_pod(self._api, namespace, self._pod(name, node), present.get(name), message, now)
            for name, node in missing.items()
        )
        await in_parallel(
            delete_pod(self._api, namespace, name) for name in present.keys() - set(wanted.values())
        )
        self._kept = wanted

    def _wanted(self) -> dict[str, str]:
        """Return the nodes that are kept now, each with the name of its pod."""
        asking = {
            queue.metadata.name
            for queue in self._caches.fluxqueues.list()
            if queue.spec.provision is Provision.PODS
        }
        if not asking:
            return {}
        about_to_start = [
            node
            for workload, allocation in self._ledger.live()
            if workload.queue in asking and workload.state is State.ALLOCATED and not allocation.remnant
            for node in sorted(allocation.open_nodes)
        ]
        reserved = [
            share.node
            for reservation in self._ledger.reservations()
            if (row := self._ledger.get(reservation.workload)) is not None and row.queue in asking
            for share in reservation.shares
        ]
        present = [node for node in dict.fromkeys((*about_to_start, *reserved)) if self._hostname(node)]
        return {
            node: f"keeps-{hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]}" for node in present[:_MOST]
        }

    def _hostname(self, name: str) -> str | None:
        node = self._caches.nodes.get("", name)
        return node.metadata.label(names.HOSTNAME_LABEL) if node is not None else None

    def _pod(self, name: str, node: str) -> dict[str, Any]:
        here = {
            "matchExpressions": [
                {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [self._hostname(node)]}
            ]
        }
        preferred = [{"weight": 100, "preference": here}]
        spec = {
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "room", "image": "room"}],
        }
        return unbound_pod(name, {names.KEEPS_LABEL: name}, {names.KEPT_NODE_ANNOTATION: node}, spec)
