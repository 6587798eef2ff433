"""Nodes by room pods, for autoscalers that add nodes to pods which the scheduler could not place: Karpenter,
and the cluster autoscaler.

A request is as many pods as the work has, in the namespace of the queue, each with the placement of one of
them. The name of a scheduler that nobody runs keeps them from being bound. The queue writes into their status
what a scheduler writes about a pod without a node, and that is what autoscalers look for (docs/decisions,
0062). A room pod asks for a node only: the work itself is matched to what comes.

Room pods have no labels of the work, so no Service, NetworkPolicy or budget of the queue's namespace can
select them by what a user wrote. Of the rules about other pods they keep one, that no two of them share a
node. Host ports, which the security level of the queue's namespace may not admit, are such a rule about the
room pods that stand for pods with the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from fluxqueue.api import names
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import PODS, Key
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.noderules.pod_rules import rules_of
from fluxqueue.queue.scheduling.provisioning.node_requests import (
    LONGEST_NAME,
    NodeRequest,
    NotRequested,
    PodSetTemplate,
    PresentRequest,
    request_name,
)
from fluxqueue.queue.scheduling.provisioning.room_turns import RoomAsked, RoomTurns

__all__ = [
    "MOST_OF_ALL_WORK",
    "MOST_OF_ONE_NAMESPACE",
    "RoomPods",
    "ask_by_pod",
    "asks",
    "delete_pod",
    "in_parallel",
    "unbound_pod",
]

MOST_OF_ONE_NAMESPACE: Final = 1_000
MOST_OF_ALL_WORK: Final = 2_000
"""Room pods at one time. Each is an object that autoscalers simulate again and again."""

_SERVED_WITHIN_S: Final = 900.0
"""Autoscalers give up a node that has not joined after so long."""
_NOT_SERVED: Final = (
    f"the autoscaler did not add all nodes in {_SERVED_WITHIN_S / 60:.0f} minutes, "
    "and other work waits to request some"
)

_AT_ONCE: Final = 16
_DIGITS: Final = 5
_SCHEDULED: Final = "PodScheduled"
_UNSCHEDULABLE: Final = "Unschedulable"
_SECURE_POD: Final = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_SECURE_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class RoomPods:
    """A `NodeRequester`.

    Parameters
    ----------
    api
        The API server.
    namespace
        Of the queue.
    wall
        Returns the time of day, for the conditions and the age of pods.
    wake
        Called with work whose request waited for room pods of other work to go.
    """

    def __init__(
        self, api: Api, namespace: str, wall: Callable[[], datetime], wake: Callable[[WorkloadId], None]
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._wall = wall
        self._wake = wake
        self._turns = RoomTurns(MOST_OF_ONE_NAMESPACE, MOST_OF_ALL_WORK)

    def key(self, workload: Workload) -> Key:
        """Return the queue's namespace and the common part of the names of its room pods."""
        return self._namespace, request_name(workload, within=LONGEST_NAME - _DIGITS)

    def adopt(self, workload: Workload) -> None:
        """Count the room pods of work of which an earlier leader created some."""
        self._turns.hold(self.key(workload), _asked(workload, workload.pods))

    async def create(self, request: NodeRequest) -> None:
        """Create the room pods that are missing, and write the condition of those that have none."""
        self._count(request)
        _, name = request.key
        present = {pod.metadata.name: pod for pod in await self._list(f"{names.ROOM_LABEL}={name}")}
        pod_sets = [pod_set for pod_set in request.pod_sets for _ in range(pod_set.count)]
        numbered = ((f"{name}-{number}", pod_set) for number, pod_set in enumerate(pod_sets))
        made = (self._create_one(request, each, pod_set, present.get(each)) for each, pod_set in numbered)
        try:
            await in_parallel(made)
        except (Invalid, Forbidden) as error:
            raise NotRequested(
                f"no pods could be created in {self._namespace} that request nodes: {error}"
            ) from error

    async def delete(self, key: Key) -> None:
        """Delete the room pods of a request, and let the next work that waits for room ask."""
        pods = await self._list(f"{names.ROOM_LABEL}={key[1]}")
        await in_parallel(delete_pod(self._api, self._namespace, pod.metadata.name) for pod in pods)
        self._turns.leave(key)
        self._wake_next()

    async def present(self) -> list[PresentRequest]:
        """Return the requests of which there are room pods.
        A request of an earlier leader is not complete until it is created again. One that was not served in
        time failed if work waits for its room.
        """
        requests: defaultdict[Key, list[Pod]] = defaultdict(list)
        for pod in await self._list(names.ROOM_LABEL):
            requests[self._namespace, pod.metadata.label(names.ROOM_LABEL) or ""].append(pod)
        overdue = self._turns.in_the_way(self._overdue(requests))
        return [
            PresentRequest(
                key,
                complete=sum(map(asks, pods)) == self._turns.pods(key),
                failed=_NOT_SERVED if key in overdue else "",
            )
            for key, pods in requests.items()
        ]

    # ---- room ----------------------------------------------------------------------------------------------

    def _count(self, request: NodeRequest) -> None:
        """Count its pods, if there is room for them."""
        if request.pods > MOST_OF_ONE_NAMESPACE:
            raise NotRequested(
                f"it has {request.pods:,} pods: nodes are requested for at most {MOST_OF_ONE_NAMESPACE:,} by "
                "pods, "
                "so split it, or use provision: gate with the cluster autoscaler"
            )
        if waits := self._turns.take(request.key, _asked(request.workload, request.pods)):
            raise NotRequested(waits, waits=True)
        self._wake_next()

    def _wake_next(self) -> None:
        if (following := self._turns.next()) is not None:
            self._wake(following)

    def _overdue(self, requests: Mapping[Key, Iterable[Pod]]) -> list[Key]:
        """Return the requests that have had their time, oldest first."""
        latest, ages = self._wall() - timedelta(seconds=_SERVED_WITHIN_S), []
        for key, pods in requests.items():
            created = min((text for pod in pods if (text := pod.metadata.creation_timestamp)), default=None)
            if created is not None and (since := datetime.fromisoformat(created)) <= latest:
                ages.append((since, key))
        return [key for _, key in sorted(ages)]

    # ---- effects -------------------------------------------------------------------------------------------

    async def _create_one(
        self, request: NodeRequest, name: str, pod_set: PodSetTemplate, present: Pod | None
    ) -> None:
        message = f"only nodes that do not exist yet could hold {request.workload.ref}"
        await ask_by_pod(
            self._api, self._namespace, _room_pod(request, name, pod_set), present, message, self._wall()
        )

    async def _list(self, selector: str) -> list[Pod]:
        return await self._api.list(PODS, self._namespace, label_selector=selector)


def _asked(workload: Workload, pods: int) -> RoomAsked:
    return RoomAsked(workload.submitted_at, workload.id, workload.namespace, pods)


async def ask_by_pod(
    api: Api, namespace: str, body: dict[str, Any], present: Pod | None, message: str, now: datetime
) -> None:
    """Create a pod that autoscalers see as one that no node holds, unless it is there and they see it so.

    Parameters
    ----------
    api, namespace, body
        Where it is created, and what.
    present
        The pod of this name; None if it is not known.
    message, now
        Of its condition.
    """
    name = body["metadata"]["name"]
    if present is None:
        with contextlib.suppress(AlreadyExists):
            present = await api.create(PODS, body, namespace)
    if present is None or asks(present):
        return
    condition = {
        "type": _SCHEDULED,
        "status": "False",
        "reason": _UNSCHEDULABLE,
        "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status = {"metadata": {"uid": present.metadata.uid}, "status": {"conditions": [condition]}}
    with contextlib.suppress(NotFound):
        await api.patch(
            PODS, name, status, namespace=namespace, patch_type=PatchType.STRATEGIC, subresource="status"
        )


async def delete_pod(api: Api, namespace: str, name: str) -> None:
    """Delete a pod that may be gone by now."""
    with contextlib.suppress(NotFound):
        await api.delete(PODS, name, namespace=namespace)


def asks(pod: Pod) -> bool:
    """True if autoscalers see that the pod needs a node."""
    condition = pod.status.condition(_SCHEDULED)
    return pod.active and condition is not None and condition.reason == _UNSCHEDULABLE


def unbound_pod(
    name: str, labels: dict[str, str], annotations: dict[str, str], spec: dict[str, Any]
) -> dict[str, Any]:
    """Return a pod that no scheduler binds, and that passes the restricted pod security level."""
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            **spec,
            "schedulerName": names.ROOM_SCHEDULER,
            "containers": [
                {**container, "securityContext": _SECURE_CONTAINER} for container in spec["containers"]
            ],
            "securityContext": _SECURE_POD,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
        },
    }


def _room_pod(request: NodeRequest, name: str, pod_set: PodSetTemplate) -> dict[str, Any]:
    """Return a pod with the placement of those of a pod set."""
    workload = request.workload
    room = {names.ROOM_LABEL: request.key[1]}
    affinity = pod_set.spec.get("affinity") or {}
    wanted: dict[str, Any] = (
        {"nodeAffinity": affinity["nodeAffinity"]} if affinity.get("nodeAffinity") else {}
    )
    ports = {
        f"{names.ROOM_PORT_PREFIX}{port['protocol'].lower()}-{port['hostPort']}": "open"
        for port in pod_set.spec["containers"][0].get("ports", ())
    }
    apart = [{**room, port: state} for port, state in ports.items()]
    if rules_of(PodSpec(affinity=affinity), workload.namespace, pod_set.labels).keeps_apart({}):
        apart = [room]
    if apart:
        wanted["podAntiAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": labels}}
                for labels in apart
            ]
        }
    containers = [
        {field: value for field, value in container.items() if field != "ports"}
        for container in pod_set.spec["containers"]
    ]
    spec = {field: value for field, value in pod_set.spec.items() if field != "affinity"}
    spec |= {"containers": containers} | ({"affinity": wanted} if wanted else {})
    labels = {names.PROVISIONS_LABEL: workload.uid, **room, **ports}
    return unbound_pod(name, labels, {names.ROOM_FOR_ANNOTATION: workload.ref}, spec)


async def in_parallel(work: Iterable[Awaitable[None]]) -> None:
    """Await all, a bounded number at a time; after an error no more are begun."""
    items = iter(work)

    async def some() -> None:
        for item in items:
            await item

    tasks = [asyncio.create_task(some()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
