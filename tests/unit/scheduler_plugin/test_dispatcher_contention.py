"""Gangs that compete for nodes on an API server that loses, repeats and delays:
whole gangs or none, and no overbooked node.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_node
from support.scheduler_processes import released

from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound, ServerError, Unreachable
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin import binder as binder_module
from fluxqueue.scheduler_plugin import pending_pods
from fluxqueue.scheduler_plugin.binder import Binder
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.claims import ClaimBinder
from fluxqueue.scheduler_plugin.dispatcher import Dispatcher
from fluxqueue.scheduler_plugin.limits import BindLimit
from fluxqueue.scheduler_plugin.reports import SchedulingReporter

NODES = 5
CORES = 8
GANGS = 30


def cores(pod: Pod) -> int:
    return int((pod.spec.containers[0].resources.requests or {})["cpu"])


class Server:
    """Stores the pods, checks preconditions, and delivers each change to the watch in order,
    some time later.
    """

    def __init__(self, dice: random.Random, caches: SchedulerCaches) -> None:
        self.dice = dice
        self.caches = caches
        self.pods: dict[str, Pod] = {}
        self.undelivered: deque[tuple[str, Pod]] = deque()
        self.times_bound: Counter[str] = Counter()
        self.overbooked: list[str] = []
        self._version = 0

    def put(self, pod: Pod) -> None:
        self._version += 1
        meta = msgspec.structs.replace(pod.metadata, resource_version=str(self._version))
        changed = msgspec.structs.replace(pod, metadata=meta)
        self.pods[meta.name] = changed
        self.undelivered.append(("put", changed))

    def delete(self, name: str) -> None:
        self.undelivered.append(("deleted", self.pods.pop(name)))

    async def show(self) -> None:
        """Deliver changes like a watch."""
        while True:
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(0)
            if self.undelivered:
                what, pod = self.undelivered.popleft()
                (self.caches.pods.apply if what == "put" else self.caches.pods.remove)(pod)
            await asyncio.sleep(0)

    def _checked(self, name: str, uid: str, version: str) -> Pod:
        pod = self.pods.get(name)
        if pod is None or pod.metadata.uid != uid:
            raise NotFound(404, "NotFound", f"{name} is gone")
        if pod.metadata.resource_version != version or pod.spec.node_name:
            raise Conflict(409, "Conflict", f"{name} has changed")
        return pod

    async def bind(
        self, name: str, _namespace: str, node: str, *, uid: str, resource_version: str, timeout_s: float
    ) -> None:
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)
        luck = self.dice.random()
        if luck < 0.08:
            raise ServerError(503, "", "busy")
        pod = self._checked(name, uid, resource_version)
        self.times_bound[uid] += 1
        self.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))
        used = sum(cores(each) for each in self.pods.values() if each.spec.node_name == node)
        if used > CORES:
            self.overbooked.append(node)
        if luck < 0.16:
            raise Unreachable("the answer was lost", sent=True)
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)

    async def patch(self, _kind: object, name: str, body: dict[str, Any], **_options: object) -> None:
        await asyncio.sleep(0)
        pod = self._checked(name, body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        conditions = [msgspec.convert(each, ObjectCondition) for each in body["status"]["conditions"]]
        self.put(
            msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))
        )

    async def create(self, _kind: object, _body: dict[str, Any], _namespace: str) -> None:
        await asyncio.sleep(0)


def make_gang(dice: random.Random, number: int) -> list[Pod]:
    size = dice.randint(1, 6)
    made = []
    for index in range(size):
        pod = released(
            f"g{number}-{index}",
            f"n{dice.randrange(NODES)}",
            allocation=str(number),
            gang=size,
            cpu=str(dice.randint(1, 3)),
        )
        made.append(
            msgspec.convert(pod.namespace("default").uid(f"u{number}-{index}").index(index).build(), Pod)
        )
    return made


def touch(server: Server, name: str) -> None:
    """Change a pod in a way that has no effect here."""
    pod = server.pods[name]
    labels = {**(pod.metadata.labels or {}), "touched": str(server.dice.random())}
    server.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)))


def by_gang(server: Server) -> dict[str, list[Pod]]:
    gangs: dict[str, list[Pod]] = {}
    for pod in server.pods.values():
        gangs.setdefault((pod.metadata.annotations or {})["fluxqueue/allocation"], []).append(pod)
    return gangs


async def settled(dispatcher: Dispatcher, reporter: SchedulingReporter, server: Server) -> None:
    async with asyncio.timeout(60):
        calm = 0
        while calm < 20:
            await asyncio.sleep(0.002)
            queues = (dispatcher._queue, reporter._queue)
            busy = (
                server.undelivered
                or any(queue._dirty or queue._processing or queue._failures for queue in queues)
                or reporter._queue.delayed
            )
            calm = 0 if busy else calm + 1


@pytest.mark.parametrize("seed", range(6))
async def test_gangs_are_bound_whole_or_not_and_what_fits_is_not_left(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder_module, "_pause_s", lambda _error, _failures: 0.0)
    # there is no queue that would take a refused gang back
    monkeypatch.setattr(pending_pods, "HAND_OVER_S", 0.0)
    dice = random.Random(seed)
    caches = SchedulerCaches(cast("Api", None))
    server = Server(dice, caches)
    api = cast("Api", server)
    for number in range(NODES):
        caches.nodes.apply(msgspec.convert(make_node(f"n{number}", cpu=str(CORES)).build(), Node))
    reporter = SchedulingReporter(api, caches, EventRecorder(api, instance="a"))
    binder = Binder(api, caches, BindLimit(clock=lambda: 0.0))
    dispatcher = Dispatcher(caches, binder, ClaimBinder(api, caches.storage), reporter, lambda: 0.0)
    tasks = [asyncio.create_task(server.show()), asyncio.create_task(dispatcher.run())]
    coming = [pod for number in range(GANGS) for pod in make_gang(dice, number)]
    if dice.random() < 0.7:
        dice.shuffle(coming)
    for pod in coming:
        server.put(pod)
        for _ in range(dice.randrange(8)):
            await asyncio.sleep(0)
        if dice.random() < 0.2 and (
            waiting := [name for name, each in server.pods.items() if not each.spec.node_name]
        ):
            touch(server, dice.choice(waiting))
        ready = [pods for pods in by_gang(server).values() if all(each.spec.node_name for each in pods)]
        if dice.random() < 0.05 and ready:
            for each in dice.choice(ready):
                server.delete(each.metadata.name)
    await settled(dispatcher, reporter, server)
    left = {f"n{number}": CORES for number in range(NODES)}
    for pod in server.pods.values():
        if pod.spec.node_name:
            left[pod.spec.node_name] -= cores(pod)
    for allocation, pods in by_gang(server).items():
        bound = [pod for pod in pods if pod.spec.node_name]
        size = int((pods[0].metadata.annotations or {})["fluxqueue/gang-size"])
        assert len(bound) in (0, len(pods)), f"gang {allocation} is bound in part"
        wanted: Counter[str] = Counter()
        for pod in pods:
            wanted[(pod.metadata.annotations or {})["fluxqueue/fluxion-nodes"]] += cores(pod)
        fits = all(left[node] >= amount for node, amount in wanted.items())
        assert bound or len(pods) < size or not fits, f"gang {allocation} fits and is not bound"
    assert server.overbooked == []
    assert set(server.times_bound.values()) <= {1}
    assert sum(server.times_bound.values()) > GANGS / 3
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
