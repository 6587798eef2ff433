"""Watches all pods while a test runs, and checks after every change that no node is overbooked.

The watch delivers the changes of pods in their order, so the sums after each change were true at that time,
not only at intervals. A pod counts on its node from its binding until it is terminal or deleted.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.requests import pod_requests, sum_requests
from fluxqueue.kube.kinds import NODES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import InProcessCluster

__all__ = ["PodOracle", "watching_pods"]


class PodOracle:
    """The observations.

    Attributes
    ----------
    overbookings
        A message for each change after which a node was overbooked.
    changes
        The number of checked changes.
    bound
        Pods that were bound to a node.
    """

    def __init__(self) -> None:
        self.overbookings: list[str] = []
        self.changes = 0
        self.bound = 0
        self._allocatable: dict[str, dict[str, Decimal]] = {}
        self._node_of: dict[str, str] = {}
        self._requests: dict[str, dict[str, dict[str, Decimal]]] = defaultdict(dict)

    async def watch(self, cluster: InProcessCluster, ready: threading.Event, ended: asyncio.Event) -> None:
        """Watch until the task is cancelled."""
        async with Api.connect(cluster.kubeconfig) as api:
            for node in await api.list(NODES):
                self._allocatable[node.metadata.name] = {
                    name: parse_quantity(amount) for name, amount in (node.status.allocatable or {}).items()
                }
            store: ObjectCache[Pod] = ObjectCache()
            store.add_handler(self._check)
            reflector = Reflector(api, PODS, store)
            watching = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
            ready.set()
            await ended.wait()
            watching.cancel()
            await asyncio.wait({watching})

    def _check(self, change: Change[Pod]) -> None:
        self.changes += 1
        pod, uid = change.obj, change.obj.metadata.uid
        stood = self._node_of.pop(uid, None)
        if stood is not None:
            del self._requests[stood][uid]
        if change.new is None or pod.terminal or not pod.spec.node_name:
            return
        node = self._node_of[uid] = pod.spec.node_name
        self._requests[node][uid] = pod_requests(pod.spec)
        if stood is None:
            self.bound += 1
            offered = self._allocatable.get(node, {})
            self.overbookings += [
                (
                    f"with pod {pod.metadata.namespace}/{pod.metadata.name}, "
                    f"{node} bears {amount} {name} of {offered.get(name, 0)}"
                )
                for name, amount in sum_requests(self._requests[node].values()).items()
                if amount > offered.get(name, 0)
            ]


@contextmanager
def watching_pods(cluster: InProcessCluster) -> Iterator[PodOracle]:
    """Yield an oracle that watches until the end of the block."""
    oracle, ready = PodOracle(), threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(oracle.watch(cluster, ready, ended),), name="pod-oracle"
    )
    thread.start()
    try:
        if not ready.wait(30):
            raise TimeoutError("the pods could not be watched within 30 s")
        yield oracle
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
