"""Copies of random worlds in one cluster: they are built, read and cleared side by side.

Each copy has a room: a namespace of its own and another one, which later copies use again. All who wait for
something read the cluster together, about once a second.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import orjson
from support.differential_earlier import RESIZED
from support.differential_worlds import (
    DELETED,
    SHARED,
    World,
    is_earlier,
    is_work,
    path_of,
    pods_of,
)
from support.gang_standins import jobs_of_jobset

from fluxqueue.api import names
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api, PatchType

__all__ = ["Copy", "WorldCluster", "unschedulable"]

Json = dict[str, Any]
REQUESTS_AT_ONCE = 24
READY_S = 180.0
EARLIER_S = 45.0
"""Until all that runs before the work does."""
CONTROL_S = 8.0
"""After this time without a new pod, no more pods of a plain copy are expected."""
_SETTLED_S = 1.0
"""Until the schedulers know what was built."""
_PAUSE_S = 0.7
_TRIES = 5
_DEVICES = "/apis/resource.k8s.io/v1"
_FLUXJOBS = f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"
_WRITTEN = ("PersistentVolume", "PersistentVolumeClaim", "Pod")
"""Kinds whose status is written after their creation."""


def _terms(storage_class: Json) -> list[Json]:
    """Return node selector terms for the nodes where a class allows volumes."""
    return [
        {"matchExpressions": [{**each, "operator": "In"} for each in term["matchLabelExpressions"]]}
        for term in storage_class["allowedTopologies"]
    ]


_STEPS: tuple[tuple[str, ...], ...] = (
    ("Node", "Namespace", "StorageClass", "CSINode", "DeviceClass", "ResourceSlice"),
    ("ServiceAccount", "PersistentVolume"),
)
"""Kinds that are created before all others."""
_REACHED_FROM = {
    body["metadata"]["name"]: {"nodeAffinity": {"required": {"nodeSelectorTerms": _terms(body)}}}
    for _, body in SHARED
    if "allowedTopologies" in body
}
"""By class: the nodes that reach its volumes, as a part of their specs."""


@dataclass
class Copy:
    """A copy of a world in the cluster.

    Attributes
    ----------
    refused
        Why the API server refused the work.
    pods, earlier
        Of the work, and of what ran before it; without those that are being deleted.
    changed_at
        When the number of pods of the work changed last.
    """

    documents: list[Json]
    use: str
    refused: str = ""
    pods: list[Json] = field(default_factory=list)
    earlier: list[Json] = field(default_factory=list)
    changed_at: float = 0.0

    @property
    def namespace(self) -> str:
        return str(next(each["metadata"]["name"] for each in self.documents if each["kind"] == "Namespace"))

    @property
    def bound(self) -> int:
        return sum(bool(each["spec"].get("nodeName")) for each in self.pods)

    @property
    def complete(self) -> bool:
        """True if all pods of the work are bound."""
        return not self.refused and self.bound >= pods_of(self.documents)

    @property
    def ready(self) -> bool:
        """True if all that runs before the work does."""
        running = sum(each.get("status", {}).get("phase") == "Running" for each in self.earlier)
        return int(running) >= pods_of(self.documents, is_earlier)

    def see(self, pods: list[Json], now: float) -> None:
        work = [each for each in pods if is_work(each)]
        if len(work) != len(self.pods) or not self.changed_at:
            self.changed_at = now
        self.pods, self.earlier = work, [each for each in pods if is_earlier(each)]

    def decided(self, now: float) -> bool:
        """True if the scheduler has answered for all pods."""
        if self.refused:
            return True
        answered = all(
            each["spec"].get("nodeName")
            or (unschedulable(each) and not each["status"].get("nominatedNodeName"))
            for each in self.pods
        )
        return answered and (len(self.pods) >= pods_of(self.documents) or now - self.changed_at > CONTROL_S)


@dataclass(frozen=True)
class _Seen:
    """What the cluster has.

    Attributes
    ----------
    pods, fluxjobs
        By namespace; without pods that are being deleted.
    running
        Namespace and name of pods.
    used
        Namespaces with anything in them that a world leaves.
    ready
        Names of nodes.
    """

    pods: dict[str, list[Json]]
    running: set[tuple[str, str]]
    fluxjobs: dict[str, list[Json]]
    used: set[str]
    ready: set[str]


class WorldCluster:
    """One cluster with copies of worlds.

    Parameters
    ----------
    api
        As administrator.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._limit = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._provided: set[str] = set()
        self._rooms: defaultdict[str, deque[str]] = defaultdict(deque)
        self._marks = (f"{secrets.token_hex(3)}-{serial}" for serial in itertools.count(1))
        self._reading: asyncio.Task[_Seen] | None = None

    async def prepare(self) -> None:
        """Create what all worlds use."""
        await self._all("POST", [(path, body) for path, body in SHARED])

    def copy(self, world: World, use: str) -> Copy:
        """Return a copy in a room that is free: to delete a namespace costs the cluster as much as ten
        worlds.
        """
        mark, free = next(self._marks), self._rooms[use]
        room = free.popleft() if free else f"room-{use}-{mark}"
        return Copy(world.marked(f"w{mark}{use}", room, empty=use == "e"), use)

    async def build(self, copies: Sequence[Copy]) -> None:
        """Create all but the work and what runs before it, and wait until it is as it should be."""
        left = [
            each for copy in copies for each in copy.documents if not is_work(each) and not is_earlier(each)
        ]
        resized = [each for each in left if "containerStatuses" in each.get("status", {})]
        for kinds in (*_STEPS, {each["kind"] for each in left}):
            chosen = [each for each in left if each["kind"] in kinds]
            left = [each for each in left if each["kind"] not in kinds]
            await self._all("POST", [(path_of(each), each) for each in chosen])
            labels = [
                (_at(each), {"metadata": {"labels": each["metadata"]["labels"]}})
                for each in chosen
                if each["kind"] == "Namespace"
            ]
            await self._all("PATCH", labels)
            await self._state([each for each in chosen if _has_status(each) and each not in resized])
            await self._all(
                "DELETE",
                [(_at(each), None) for each in chosen if DELETED in (each["metadata"].get("labels") or {})],
            )
        nodes = {
            each["metadata"]["name"] for copy in copies for each in copy.documents if each["kind"] == "Node"
        }
        await self._until(lambda seen: nodes - seen.ready, "nodes are not ready")
        if resized:
            names_of = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in resized}
            await self._until(lambda seen: names_of - seen.running, "pods do not run")
            await self._state(resized)
        await asyncio.sleep(_SETTLED_S)

    async def _state(self, documents: Iterable[Json]) -> None:
        """Write the statuses of documents."""
        await self._all("PATCH", [(f"{_at(each)}/status", {"status": each["status"]}) for each in documents])

    async def run_earlier(self, copies: Sequence[Copy]) -> None:
        """Create what runs before the work; once all of it runs, resize what is to be resized."""
        for copy in copies:
            await self._all("POST", [(path_of(each), each) for each in copy.documents if is_earlier(each)])
        begun = time.monotonic()
        while not all(copy.ready for copy in copies):
            since = time.monotonic() - begun
            full = any(
                map(unschedulable, (pod for copy in copies if copy.use == "p" for pod in copy.earlier))
            )
            if since > EARLIER_S or (full and since > CONTROL_S):
                return
            await self.look(*copies)
        for pod in (pod for copy in copies for pod in copy.earlier):
            if cores := pod["metadata"]["annotations"].get(RESIZED):
                await self._resize(pod, cores)
        await asyncio.sleep(_SETTLED_S)

    async def _resize(self, pod: Json, cores: str) -> None:
        """Resize a pod in place, and report it as the kubelet does, without which no pod can be resized."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        (container,), (status,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
        new = {"requests": {**container["resources"]["requests"], "cpu": cores}}
        for where, change in (
            ("status", {"status": {"containerStatuses": [{**status, "resources": container["resources"]}]}}),
            ("resize", {"spec": {"containers": [{**container, "resources": new}]}}),
            (
                "status",
                {
                    "status": {
                        "containerStatuses": [
                            {**status, "resources": new, "allocatedResources": new["requests"]}
                        ]
                    }
                },
            ),
        ):
            if refused := await self._write("PATCH", f"{path}/{where}", change):
                raise AssertionError(f"a pod cannot be resized: {refused}")

    async def submit(self, copy: Copy) -> None:
        """Create the work; what the API server refuses is noted."""
        for each in copy.documents:
            if is_work(each):
                copy.refused = copy.refused or await self._write("POST", path_of(each), each)
                if each["kind"] == "JobSet" and not copy.refused:
                    copy.refused = await self._control(each)

    async def _control(self, jobset: Json) -> str:
        """Make the Jobs of a JobSet and resume them, as its controller does; return why one is refused."""
        stored: Json = orjson.loads(await self._api.request("GET", _at(jobset)))
        owner = {key: stored[key] for key in ("apiVersion", "kind")} | {"controller": True}
        owner |= {key: stored["metadata"][key] for key in ("name", "uid")}
        for job in jobs_of_jobset(stored, owner):
            meta = job["metadata"]
            meta["labels"] = stored["metadata"]["labels"] | meta["labels"]
            path = f"/apis/batch/v1/namespaces/{stored['metadata']['namespace']}/jobs"
            if refused := await self._write("POST", path, job):
                return refused
            await self._write("PATCH", f"{path}/{meta['name']}", {"spec": {"suspend": False}})
        return ""

    async def preempted(self, copy: Copy, uids: Collection[str]) -> str:
        """Return what the scheduler says of one of these pods that it preempted; empty if it did not."""
        path = f"/api/v1/namespaces/{copy.namespace}/events"
        answer = await self._api.request("GET", path, query={"fieldSelector": "reason=Preempted"})
        said = (
            each.get("message", "") or "no reason"
            for each in orjson.loads(answer)["items"]
            if each["involvedObject"].get("uid") in uids
        )
        return next(said, "")

    async def look(self, *copies: Copy) -> dict[str, list[Json]]:
        """Read what became of copies; return the FluxJobs by namespace."""
        seen = await self._read()
        for copy in copies:
            copy.see(seen.pods.get(copy.namespace, []), time.monotonic())
        return seen.fluxjobs

    async def clear(self, copies: Sequence[Copy]) -> None:
        """Delete copies; their rooms are free once `leave` has seen them empty."""
        documents = [each for copy in copies for each in copy.documents]
        spaces = [each["metadata"]["name"] for each in documents if each["kind"] == "Namespace"]
        gone = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        made = [each for each in documents if is_work(each) or is_earlier(each)]
        await self._all("DELETE", [(_at(each), gone) for each in made])
        if any(each["kind"] == "JobSet" for each in made):
            await self._all("DELETE", [(f"/apis/batch/v1/namespaces/{name}/jobs", gone) for name in spaces])
        for plural in ("pods", "pods", "persistentvolumeclaims", "resourcequotas"):
            await self._all("DELETE", [(f"/api/v1/namespaces/{name}/{plural}", gone) for name in spaces])
        if any(each["kind"] == "DeviceClass" for each in documents):
            for plural in ("resourceclaims", "resourceclaimtemplates"):
                await self._all(
                    "DELETE", [(f"{_DEVICES}/namespaces/{name}/{plural}", gone) for name in spaces]
                )
        wide = ("PersistentVolume", "StorageClass", "CSINode", "ResourceSlice", "DeviceClass", "Node")
        await self._all(
            "DELETE", [(_at(each), gone) for kind in wide for each in documents if each["kind"] == kind]
        )

    async def leave(self, copies: Sequence[Copy]) -> None:
        """Wait until nothing is left in the rooms of copies, which others may use then."""
        rooms = {copy.namespace for copy in copies}
        await self._until(lambda seen: rooms & seen.used, "something is left in rooms")
        for copy in copies:
            self._rooms[copy.use].append(copy.namespace)

    # ---- reading -------------------------------------------------------------------------------------------

    async def _until(self, wrong: Callable[[_Seen], AbstractSet[Any]], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while found := wrong(await self._read()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {sorted(found)}")

    async def _read(self) -> _Seen:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_once())
        return await asyncio.shield(self._reading)

    async def _read_once(self) -> _Seen:
        await asyncio.sleep(_PAUSE_S)
        pods, claims, of_devices, fluxjobs, nodes = await asyncio.gather(
            *map(
                self._items,
                (
                    "/api/v1/pods",
                    "/api/v1/persistentvolumeclaims",
                    f"{_DEVICES}/resourceclaims",
                    _FLUXJOBS,
                    "/api/v1/nodes",
                ),
            )
        )
        await self._provide(claims)
        return _Seen(
            _by_namespace(pod for pod in pods if "deletionTimestamp" not in pod["metadata"]),
            {
                (pod["metadata"]["namespace"], pod["metadata"]["name"])
                for pod in pods
                if pod["status"].get("phase") == "Running"
            },
            _by_namespace(fluxjobs),
            {
                each["metadata"]["namespace"].removesuffix("-b")
                for each in (*pods, *claims, *of_devices, *fluxjobs)
            },
            {node["metadata"]["name"] for node in nodes if _ready(node)},
        )

    async def _provide(self, claims: Iterable[Json]) -> None:
        """Give claims of a provisioner their volumes, as it would: within the topologies of their classes."""
        for claim in claims:
            meta, spec = claim["metadata"], claim["spec"]
            annotations = meta.get("annotations", {})
            provisioner = annotations.get("volume.kubernetes.io/storage-provisioner")
            if (
                spec.get("volumeName")
                or "volume.kubernetes.io/selected-node" not in annotations
                or meta["uid"] in self._provided
                or provisioner is None
            ):
                continue
            self._provided.add(meta["uid"])
            body = {
                "metadata": {
                    "name": f"made-{meta['uid']}",
                    "annotations": {"pv.kubernetes.io/provisioned-by": provisioner},
                },
                "spec": {
                    "capacity": spec["resources"]["requests"],
                    "accessModes": spec["accessModes"],
                    "volumeMode": spec.get("volumeMode", "Filesystem"),
                    "storageClassName": spec["storageClassName"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "csi": {"driver": provisioner, "volumeHandle": meta["uid"]},
                    **_REACHED_FROM.get(spec["storageClassName"], {}),
                    "claimRef": {
                        "kind": "PersistentVolumeClaim",
                        **{key: meta[key] for key in ("namespace", "name", "uid")},
                    },
                },
            }
            await self._write("POST", "/api/v1/persistentvolumes", body)

    # ---- requests ------------------------------------------------------------------------------------------

    async def _items(self, path: str) -> list[Json]:
        items: list[Json] = orjson.loads(
            await self._api.request("GET", path, query={"resourceVersion": "0"})
        )["items"]
        return items

    async def _all(self, method: str, requests: Iterable[tuple[str, Any]]) -> None:
        await asyncio.gather(*(self._write(method, path, body) for path, body in requests))

    async def _write(self, method: str, path: str, body: Any) -> str:
        """Send a write, again if a busy server could not take it; return why it was refused."""
        kind = PatchType.MERGE.value if method == "PATCH" else "application/json"
        why = ""
        for _ in range(_TRIES):
            async with self._limit:
                try:
                    await self._api.request(method, path, body=body, content_type=kind, timeout_s=30)
                except ApiError as error:
                    why = str(error)
                    if error.is_refusal:
                        return why
                else:
                    return ""
            await asyncio.sleep(_PAUSE_S)
        return why


def unschedulable(pod: Json) -> str:
    """Return why the scheduler could not place a pod; empty if it has not said so."""
    for each in pod.get("status", {}).get("conditions", ()):
        if (
            each["type"] == "PodScheduled"
            and each["status"] == "False"
            and each.get("reason") == "Unschedulable"
        ):
            return str(each.get("message", "")) or "no reason"
    return ""


def _by_namespace(items: Iterable[Json]) -> dict[str, list[Json]]:
    found: defaultdict[str, list[Json]] = defaultdict(list)
    for each in items:
        found[each["metadata"]["namespace"]].append(each)
    return found


def _at(document: Json) -> str:
    return f"{path_of(document)}/{document['metadata']['name']}"


def _has_status(document: Json) -> bool:
    return document["kind"] in _WRITTEN and "status" in document


def _ready(node: Json) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    cordoned = node["spec"].get("unschedulable", False) == ("node.kubernetes.io/unschedulable" in taints)
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints and cordoned
