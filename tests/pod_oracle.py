"""Watches all pods while a test runs and sees at every single change whether a node bears more than it has.

The watch delivers the changes of pods in the order in which they happened, so what is added up after each of them was true at that moment
and not only when somebody looked. Pods count on their node from their binding until they are terminal or gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from fluxqueue.api.objects import Pod
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.requests import pod_requests, summed
from fluxqueue.kube.kinds import NODES, PODS
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.store import Change, Store
from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import InProcessPlane

__all__ = ["PodOracle", "watching_pods"]


class PodOracle:
    """What was seen.

    Attributes
    ----------
    overbookings
        Each change after which a node bore too much, in a sentence.
    changes
        How many were judged.
    bound
        Pods that came to stand on a node.
    """

    def __init__(self) -> None:
        self.overbookings: list[str] = []
        self.changes = 0
        self.bound = 0
        self._offered: dict[str, dict[str, Decimal]] = {}
        self._node_of: dict[str, str] = {}
        self._standing: dict[str, dict[str, dict[str, Decimal]]] = defaultdict(dict)

    async def watch(self, plane: InProcessPlane, ready: threading.Event, ended: asyncio.Event) -> None:
        """Follow until told to end."""
        async with Api.connect(plane.kubeconfig) as api:
            for node in await api.list(NODES):
                self._offered[node.metadata.name] = {
                    name: parse_quantity(amount) for name, amount in (node.status.allocatable or {}).items()
                }
            store: Store[Pod] = Store()
            store.add_handler(self._judge)
            reflector = Reflector(api, PODS, store)
            watching = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
            ready.set()
            await ended.wait()
            watching.cancel()
            await asyncio.wait({watching})

    def _judge(self, change: Change[Pod]) -> None:
        self.changes += 1
        pod, uid = change.obj, change.obj.metadata.uid
        stood = self._node_of.pop(uid, None)
        if stood is not None:
            del self._standing[stood][uid]
        if change.new is None or pod.terminal or not pod.spec.node_name:
            return
        node = self._node_of[uid] = pod.spec.node_name
        self._standing[node][uid] = pod_requests(pod.spec)
        if stood is None:
            self.bound += 1
            offered = self._offered.get(node, {})
            self.overbookings += [
                f"with pod {pod.metadata.namespace}/{pod.metadata.name}, {node} bears {amount} {name} of {offered.get(name, 0)}"
                for name, amount in summed(self._standing[node].values()).items()
                if amount > offered.get(name, 0)
            ]


@contextmanager
def watching_pods(plane: InProcessPlane) -> Iterator[PodOracle]:
    """An oracle that watches from now on until the end of the block."""
    oracle, ready = PodOracle(), threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(oracle.watch(plane, ready, ended),), name="pod-oracle")
    thread.start()
    try:
        if not ready.wait(30):
            raise TimeoutError("the pods could not be watched within 30 s")
        yield oracle
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
