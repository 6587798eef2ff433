"""Judges the queue by kube-scheduler: the same work in equal worlds, once queued and once plain, many worlds
at a time.

The rules:

- ``Unsatisfiable`` and ``InvalidRequest`` are only for work that the scheduler cannot place in an empty copy
  of the world.
- The scheduler refuses no pod that the queue released; after a refusal no node is held for longer than
  `HELD_S`.
- Work that the scheduler places entirely when it is not queued is started by the queue too.
- Released pods do not violate their own spread constraints, which the scheduler cannot judge for a pod that
  is pinned to a node.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from support.differential_worlds import DELETED, ROLE, SHARED, World, is_work, path_of, pods_of
from support.known_differences import known_difference
from support.spread_counts import overfull

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api, PatchType

__all__ = ["Judge", "Trial"]

Json = dict[str, Any]
FOR_EVER = (Reason.UNSATISFIABLE, Reason.INVALID_REQUEST)
AT_ONCE = 24
READY_S = 180.0
CONTROL_S = 8.0
"""After this time without a new pod, no more pods of a plain copy are expected."""
DECIDED_S = 30.0
SILENT_S = 180.0
"""How long a busy machine may take until the queue says anything."""
HELD_S = 60.0
_LATE_S = 15.0
_DEVICES = "/apis/resource.k8s.io/v1"
_PAUSE_S = 0.7
_WRITTEN = ("PersistentVolume", "PersistentVolumeClaim", "Pod")
"""Kinds whose status is written after their creation."""


@dataclass
class Copy:
    """A copy of a world in the cluster."""

    documents: list[Json]
    use: str
    refused: str = ""
    pods: list[Json] = field(default_factory=list)
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

    def see(self, pods: list[Json], now: float) -> None:
        if len(pods) != len(self.pods) or not self.changed_at:
            self.changed_at = now
        self.pods = pods

    def decided(self, now: float) -> bool:
        """True if the scheduler has answered for all pods."""
        if self.refused:
            return True
        answered = all(each["spec"].get("nodeName") or _unschedulable(each) for each in self.pods)
        return answered and (len(self.pods) >= pods_of(self.documents) or now - self.changed_at > CONTROL_S)


@dataclass
class Trial:
    """One world, and what became of it.

    Attributes
    ----------
    fault
        The rule that was broken, in a sentence; empty if none was.
    known
        The known difference that explains why the queue lets work wait; then it is no fault.
    verdict
        ``started``, or why the queue lets the work wait.
    refusals
        What the scheduler said of released pods, once for each pod. It may take them later: those of a gang
        wait for each other.
    """

    world: World
    queued: Copy
    plain: Copy
    fault: str = ""
    known: str = ""
    verdict: str = ""
    message: str = ""
    refusals: dict[str, str] = field(default_factory=dict)
    refused_at: float = 0.0
    released: int = 0

    @property
    def title(self) -> str:
        return f"world {self.world.number}: {self.fault}"


class Judge:
    """Runs worlds on one cluster.

    Parameters
    ----------
    api
        As administrator.
    fluxion
        True if the project's scheduler binds what is queued.
    """

    def __init__(self, api: Api, *, fluxion: bool = False) -> None:
        self._api = api
        self._fluxion = fluxion
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._provided: set[str] = set()
        self._rooms: defaultdict[str, deque[str]] = defaultdict(deque)
        self._marks = (f"{secrets.token_hex(3)}-{serial}" for serial in itertools.count(1))
        self.verdicts: Counter[str] = Counter()
        self.worlds = self.refusals = self.released = 0

    async def prepare(self) -> None:
        """Create what all worlds use."""
        await self._all("POST", [(path, body) for path, body in SHARED])

    async def judge(self, worlds: Sequence[World]) -> list[Trial]:
        """Run worlds together; return their trials, in this order."""
        trials = [self._trial(world) for world in worlds]
        copies = [copy for trial in trials for copy in (trial.queued, trial.plain)]
        try:
            await self._build(copies)
            await self._submit(copies)
            await self._follow(trials)
        finally:
            await self._clear(copies)
        await self._judge_waits([trial for trial in trials if trial.verdict in FOR_EVER and not trial.fault])
        for trial in trials:
            if trial.fault and trial.verdict != "started" and not trial.refusals:
                trial.known = known_difference(trial.world, trial.message)
                trial.fault = "" if trial.known else trial.fault
        self.verdicts.update(str(trial.verdict) for trial in trials)
        self.refusals += sum(len(trial.refusals) for trial in trials)
        self.released += sum(trial.released for trial in trials)
        self.worlds += len(trials)
        return trials

    async def fails(self, worlds: Sequence[World]) -> list[bool]:
        """Return for each world whether a rule is broken in it."""
        return [bool(trial.fault) for trial in await self.judge(worlds)]

    def _trial(self, world: World) -> Trial:
        queued = self._copy(world, "q")
        for each in queued.documents:
            if each["kind"] == "Namespace":
                each["metadata"]["labels"][names.MANAGED_LABEL] = "true"
            if is_work(each) and self._fluxion:
                each["metadata"]["labels"][names.SCHEDULER_LABEL] = "fluxion"
        return Trial(world, queued, self._copy(world, "p"))

    def _copy(self, world: World, use: str) -> Copy:
        """Return a copy in namespaces that are free: to delete one costs the cluster as much as ten
        worlds.
        """
        mark, free = next(self._marks), self._rooms[use]
        room = free.popleft() if free else f"room-{use}-{mark}"
        return Copy(world.marked(f"w{mark}{use}", room, empty=use == "e"), use)

    # ---- building ------------------------------------------------------------------------------------------

    async def _build(self, copies: Sequence[Copy]) -> None:
        documents = [each for copy in copies for each in copy.documents if not is_work(each)]
        await self._swept({copy.namespace for copy in copies})
        for kinds in (
            ("Node", "Namespace", "StorageClass", "CSINode", "DeviceClass", "ResourceSlice"),
            ("ServiceAccount", "PersistentVolume"),
            None,
        ):
            chosen = [each for each in documents if (each["kind"] in kinds if kinds else True)]
            documents = [each for each in documents if each not in chosen] if kinds else []
            await self._all("POST", [(path_of(each), each) for each in chosen])
            labels = [
                (_at(each), {"metadata": {"labels": each["metadata"]["labels"]}})
                for each in chosen
                if each["kind"] == "Namespace"
            ]
            await self._all("PATCH", labels)
            await self._all(
                "PATCH",
                [(f"{_at(each)}/status", {"status": each["status"]}) for each in chosen if _has_status(each)],
            )
            await self._all(
                "DELETE",
                [(_at(each), None) for each in chosen if DELETED in (each["metadata"].get("labels") or {})],
            )
        nodes = {
            each["metadata"]["name"] for copy in copies for each in copy.documents if each["kind"] == "Node"
        }
        deadline = time.monotonic() + READY_S
        while not nodes <= {
            node["metadata"]["name"] for node in await self._items("/api/v1/nodes") if _ready(node)
        }:
            if time.monotonic() > deadline:
                raise TimeoutError("the nodes are not ready")
            await asyncio.sleep(_PAUSE_S)
        await asyncio.sleep(1)

    async def _swept(self, rooms: set[str]) -> None:
        """Wait until nothing is left of the worlds that were in these namespaces before."""
        deadline = time.monotonic() + READY_S
        for path in (
            "/api/v1/pods",
            "/api/v1/persistentvolumeclaims",
            f"{_DEVICES}/resourceclaims",
            f"/apis/{names.API_VERSION}/{names.FLUXJOBS}",
        ):
            while rooms & {
                each["metadata"]["namespace"].removesuffix("-b") for each in await self._items(path)
            }:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"worlds of before are not gone from {path}")
                await asyncio.sleep(_PAUSE_S)

    async def _submit(self, copies: Sequence[Copy]) -> None:
        async def submit(copy: Copy) -> None:
            for each in copy.documents:
                if is_work(each):
                    copy.refused = copy.refused or await self._write("POST", path_of(each), each)

        await asyncio.gather(*(submit(copy) for copy in copies))

    # ---- following -----------------------------------------------------------------------------------------

    async def _follow(self, trials: Sequence[Trial]) -> None:
        begun = time.monotonic()
        open_trials = [*trials]
        while open_trials:
            await self._look([copy for trial in open_trials for copy in (trial.queued, trial.plain)])
            fluxjobs: dict[str, list[Json]] = defaultdict(list)
            for each in await self._items(f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"):
                fluxjobs[each["metadata"]["namespace"]].append(each)
            now = time.monotonic()
            open_trials = [
                each
                for each in open_trials
                if not _ended(each, fluxjobs[each.queued.namespace], now, now - begun)
            ]
            await asyncio.sleep(_PAUSE_S)

    async def _look(self, copies: Iterable[Copy]) -> None:
        pods: dict[str, list[Json]] = defaultdict(list)
        for pod in await self._items("/api/v1/pods"):
            if ROLE in pod["metadata"].get("labels", {}) and "deletionTimestamp" not in pod["metadata"]:
                pods[pod["metadata"]["namespace"]].append(pod)
        await self._provide()
        for copy in copies:
            copy.see(pods[copy.namespace], time.monotonic())

    async def _provide(self) -> None:
        """Give claims of a provisioner their volumes, as it would."""
        for claim in await self._items("/api/v1/persistentvolumeclaims"):
            meta, spec = claim["metadata"], claim["spec"]
            annotations = meta.get("annotations", {})
            if (
                spec.get("volumeName")
                or "volume.kubernetes.io/selected-node" not in annotations
                or meta["uid"] in self._provided
            ):
                continue
            if "volume.kubernetes.io/storage-provisioner" not in annotations:
                continue
            self._provided.add(meta["uid"])
            body = {
                "metadata": {
                    "name": f"made-{meta['uid']}",
                    "annotations": {
                        "pv.kubernetes.io/provisioned-by": annotations[
                            "volume.kubernetes.io/storage-provisioner"
                        ]
                    },
                },
                "spec": {
                    "capacity": spec["resources"]["requests"],
                    "accessModes": spec["accessModes"],
                    "volumeMode": spec.get("volumeMode", "Filesystem"),
                    "storageClassName": spec["storageClassName"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "csi": {
                        "driver": annotations["volume.kubernetes.io/storage-provisioner"],
                        "volumeHandle": meta["uid"],
                    },
                    "claimRef": {
                        "kind": "PersistentVolumeClaim",
                        **{key: meta[key] for key in ("namespace", "name", "uid")},
                    },
                },
            }
            await self._write("POST", "/api/v1/persistentvolumes", body)

    async def _judge_waits(self, trials: Sequence[Trial]) -> None:
        """Find work that the queue gave up, and that the scheduler places in an empty copy of its world."""
        if not trials:
            return
        copies = {index: self._copy(trial.world, "e") for index, trial in enumerate(trials)}
        try:
            await self._build([*copies.values()])
            await self._submit([*copies.values()])
            deadline = time.monotonic() + DECIDED_S
            while time.monotonic() < deadline:
                await self._look(copies.values())
                if all(copy.complete or copy.decided(time.monotonic()) for copy in copies.values()):
                    break
                await asyncio.sleep(_PAUSE_S)
            for index, trial in enumerate(trials):
                if copies[index].complete:
                    trial.fault = (
                        f"false {trial.verdict}: the scheduler places it in the empty world; "
                        f"the queue: {trial.message}"
                    )
        finally:
            await self._clear([*copies.values()])

    # ---- requests ------------------------------------------------------------------------------------------

    async def _clear(self, copies: Sequence[Copy]) -> None:
        documents = [each for copy in copies for each in copy.documents]
        spaces = [each["metadata"]["name"] for each in documents if each["kind"] == "Namespace"]
        gone = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        await self._all("DELETE", [(_at(each), gone) for each in documents if is_work(each)])
        for plural in ("pods", "pods", "persistentvolumeclaims", "resourcequotas"):
            await self._all("DELETE", [(f"/api/v1/namespaces/{name}/{plural}", gone) for name in spaces])
        for plural in ("resourceclaims", "resourceclaimtemplates"):
            await self._all("DELETE", [(f"{_DEVICES}/namespaces/{name}/{plural}", gone) for name in spaces])
        wide = ("PersistentVolume", "StorageClass", "CSINode", "ResourceSlice", "DeviceClass", "Node")
        await self._all(
            "DELETE", [(_at(each), gone) for kind in wide for each in documents if each["kind"] == kind]
        )
        for copy in copies:
            self._rooms[copy.use].append(copy.namespace)

    async def _items(self, path: str) -> list[Json]:
        items: list[Json] = orjson.loads(
            await self._api.request("GET", path, query={"resourceVersion": "0"})
        )["items"]
        return items

    async def _all(self, method: str, requests: Iterable[tuple[str, Any]]) -> None:
        await asyncio.gather(*(self._write(method, path, body) for path, body in requests))

    async def _write(self, method: str, path: str, body: Any) -> str:
        """Send a write; return why it was refused."""
        kind = PatchType.MERGE.value if method == "PATCH" else "application/json"
        async with self._limit:
            try:
                await self._api.request(method, path, body=body, content_type=kind, timeout_s=30)
            except ApiError as error:
                return str(error)
        return ""


def _at(document: Json) -> str:
    return f"{path_of(document)}/{document['metadata']['name']}"


def _has_status(document: Json) -> bool:
    return document["kind"] in _WRITTEN and "status" in document


def _ready(node: Json) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    cordoned = node["spec"].get("unschedulable", False) == ("node.kubernetes.io/unschedulable" in taints)
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints and cordoned


def _unschedulable(pod: Json) -> str:
    """Return why the scheduler could not place a pod; empty if it has not said so."""
    for each in pod.get("status", {}).get("conditions", ()):
        if (
            each["type"] == "PodScheduled"
            and each["status"] == "False"
            and each.get("reason") == "Unschedulable"
        ):
            return str(each.get("message", "")) or "no reason"
    return ""


def _ended(trial: Trial, fluxjobs: list[Json], now: float, since: float) -> bool:
    """Judge a trial by what is seen now; return true if no more is expected."""
    queued, plain = trial.queued, trial.plain
    for pod in queued.pods:
        if not pod["spec"].get("nodeName") and (why := _unschedulable(pod)):
            trial.refusals.setdefault(pod["metadata"]["uid"], why)
            trial.refused_at = trial.refused_at or now
    if queued.refused:
        trial.verdict = "refused"
        trial.fault = (
            f"refused at creation, and the plain one runs: {queued.refused}" if plain.complete else ""
        )
        return bool(plain.refused or plain.complete) or since > CONTROL_S
    if queued.complete:
        trial.verdict, trial.released = "started", queued.bound
        trial.fault = overfull(queued.documents, queued.pods)
        return True
    waiting = [
        each["status"] for each in fluxjobs if each.get("status", {}).get("state") in ("Pending", "Allocated")
    ]
    reasons = {each.get("reason", ""): each.get("message", "") for each in waiting}
    given_up = next((reason for reason in FOR_EVER if reason in reasons), None)
    trial.verdict = given_up or max(reasons, default="") or "silent"
    trial.message = reasons.get(trial.verdict, "")
    refused = [why for pod in queued.pods if not pod["spec"].get("nodeName") and (why := _unschedulable(pod))]
    if refused:
        held = any(each["state"] == "Allocated" for each in waiting)
        if now - trial.refused_at > HELD_S + _LATE_S or (now - trial.refused_at > DECIDED_S and not held):
            kept = f", and its nodes are held for {now - trial.refused_at:.0f} s" if held else ""
            trial.fault = f"refused after its release{kept}: {refused[0]}"
            return True
        return False
    patience = SILENT_S if trial.verdict == "silent" else DECIDED_S
    if plain.complete and trial.verdict != "silent" and known_difference(trial.world, trial.message):
        patience = CONTROL_S
    if plain.complete:
        if since > patience:
            trial.fault = f"plain, it runs; the queue says {trial.verdict}: {trial.message}"
        return since > patience
    if trial.verdict == "silent" and (queued.pods or any(each["kind"] == "Job" for each in queued.documents)):
        return since > patience
    return plain.decided(now)
