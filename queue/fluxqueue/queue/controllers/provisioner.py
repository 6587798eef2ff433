"""Asks the cluster autoscaler for nodes, for work that no node there is could hold.

What waits with the reason ``Provisioning`` has one ProvisioningRequest beside its FluxJob, with a pod template for each kind of pod in it.
That asks for room and binds nothing: when the nodes come the graph has them, the work is matched and pinned as any other, and with the
reason the request goes. Both belong to the FluxJob, so they end with it even where nobody is left to withdraw them.

Names are made of the workload and of what it asks for: who repeats a request after a crash finds it made, and who asks for something else
by now makes another. The sweep lists all requests that are ours: those that nobody waits for are withdrawn, those that somebody deleted
are made again, and of those the autoscaler gave up it is said so on the user's object, before it is asked again some minutes later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import ProvisioningRequest
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.objects import PodSpec
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import Recorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS, POD_TEMPLATES, PROVISIONING_REQUESTS
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.minicluster.marks import InvalidMarks
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.tellings import subjects_of
from fluxqueue.queue.fluxclusters import services_of, with_flux
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.provisioning import MOST_TEMPLATES, PROVISIONING_CLASS, Room, request_name, rooms_of, template_body
from fluxqueue.queue.records import ReleaseMode, Workload, WorkloadId

__all__ = ["Provisioner"]

log = structlog.get_logger()

_WORKERS = 2
_SOON_S = 1.0
_AGAIN_S = 300.0
"""After the autoscaler gave a request up, or the API server did not take it."""

Pods = Iterable[tuple[Mapping[str, str], PodSpec, int]]


class Provisioner:
    """Keeps ProvisioningRequests.

    Parameters
    ----------
    api, caches, ledger
        Where they are made, what is there, and who waits.
    recorder
        Says on the user's object that nodes will not come.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: Recorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("provisioning")
        self._asked: dict[WorkloadId, tuple[str, str]] = {}
        """Namespace and name of the requests that are known to be there."""
        self._not_before: dict[WorkloadId, float] = {}
        self._compare = asyncio.Event()
        ledger.subscribe(self._keys.add)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compare_when_told())
            group.create_task(run_workers(self._keys, _WORKERS, self._look))

    def look_at_everything(self) -> None:
        """Ask for those that wait, and withdraw what is left over."""
        for workload in self._ledger.all():
            if _wants(workload):
                self._keys.add(workload.id)
        self._compare.set()

    async def _look(self, found: WorkloadId) -> float | None:
        workload, asked = self._ledger.get(found), self._asked.get(found)
        wanted = (workload.namespace, request_name(workload)) if workload is not None and _wants(workload) else None
        if asked is not None and asked != wanted:
            await self._withdraw(*asked)
            self._asked.pop(found, None)
        if workload is None or wanted is None:
            self._not_before.pop(found, None)
            return None
        if asked == wanted:
            return None
        if (wait_s := self._not_before.get(found, 0.0) - asyncio.get_running_loop().time()) > 0:
            return wait_s
        fluxjob = self._caches.fluxjob_of(workload.uid)
        if fluxjob is None:
            return _SOON_S
        try:
            rooms = rooms_of(self._pods_of(workload), self._node_selector(workload))
        except (InvalidMarks, InvalidRequest):
            return _SOON_S  # it was edited since: the intake is about to say so
        if not rooms:
            return _SOON_S
        if len(rooms) > MOST_TEMPLATES:
            self._give_up(workload, f"its pods are of {len(rooms)} kinds: an autoscaler can be asked for {MOST_TEMPLATES} at once")
            return _AGAIN_S
        try:
            await self._ask(workload, rooms, fluxjob, wanted[1])
        except NotFound:
            await self._withdraw(*wanted)
            kind = f"{PROVISIONING_REQUESTS.kind}s ({PROVISIONING_REQUESTS.api_version})"
            self._give_up(workload, f"nobody can be asked for nodes: this cluster serves no {kind}")
            return _AGAIN_S
        except (Invalid, Forbidden) as error:
            await self._withdraw(*wanted)
            self._give_up(workload, f"the autoscaler could not be asked for nodes: {error}")
            return _AGAIN_S
        self._asked[found] = wanted
        return None

    async def _ask(self, workload: Workload, rooms: Sequence[Room], fluxjob: FluxJob, name: str) -> None:
        """Make templates and request; those that are there already are the same."""
        owner = [FLUXJOBS.reference(fluxjob, controller=True)]
        labels = {names.PROVISIONS_LABEL: workload.uid}
        sets: list[dict[str, Any]] = []
        for number, room in enumerate(rooms):
            metadata = {"name": _template_name(name, number), "labels": labels, "ownerReferences": owner}
            with contextlib.suppress(AlreadyExists):
                await self._api.create(POD_TEMPLATES, template_body(room, metadata), workload.namespace)
            sets.append({"podTemplateRef": {"name": metadata["name"]}, "count": room.count})
        body = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
            "spec": {"provisioningClassName": PROVISIONING_CLASS, "podSets": sets},
        }
        with contextlib.suppress(AlreadyExists):
            await self._api.create(PROVISIONING_REQUESTS, body, workload.namespace)
        log.info("nodes asked of the autoscaler", workload=workload.id, uid=workload.uid, request=name, pods=_pods(rooms))

    def _pods_of(self, workload: Workload) -> Pods:
        """Labels, complete spec and number of its pods."""
        if workload.kind == "Job":
            job = self._caches.jobs.get_by_uid(workload.uid)
            if job is None:
                return
            template = job.spec.template
            spec = with_flux(template.spec, template.metadata, workload.namespace)
            around = self._caches.surroundings(workload.namespace)
            runtime = around.runtime_classes.get(spec.runtime_class_name or "")
            services = services_of(self._caches.minicluster_of(job), job)
            pods = workload.pods - (1 if services is not None else 0)
            yield template.metadata.labels or {}, with_defaults(spec, around.limit_ranges, runtime), pods
            if services is not None:
                yield services.metadata.labels or {}, with_defaults(services.spec, around.limit_ranges, runtime), 1
        elif workload.release_mode is ReleaseMode.GROUP:
            for member in self._caches.members_of(workload)[: workload.pods]:
                yield member.metadata.labels or {}, member.spec, 1
        elif (pod := self._caches.pods.get_by_uid(workload.uid)) is not None:
            yield pod.metadata.labels or {}, pod.spec, 1

    def _node_selector(self, workload: Workload) -> Mapping[str, str]:
        defaults = self._caches.surroundings(workload.namespace).queues.get(workload.queue)
        return defaults.node_selector if defaults is not None else {}

    def _give_up(self, workload: Workload, sentence: str) -> None:
        """Say that nodes will not come, and ask no more for a while."""
        self._not_before[workload.id] = asyncio.get_running_loop().time() + _AGAIN_S
        log.warning("no nodes from the autoscaler", workload=workload.id, uid=workload.uid, reason=sentence)
        message = f"{sentence}; it is asked again in {_AGAIN_S / 60:.0f} minutes"
        for subject in subjects_of(workload, self._caches):
            self._recorder.record(subject, "ProvisioningFailed", message, severity=Severity.WARNING)

    async def _withdraw(self, namespace: str, name: str) -> None:
        """Delete a request and its templates."""
        with contextlib.suppress(NotFound):
            await self._api.delete(PROVISIONING_REQUESTS, name, namespace=namespace)
        for number in range(MOST_TEMPLATES):
            try:
                await self._api.delete(POD_TEMPLATES, _template_name(name, number), namespace=namespace)
            except NotFound:
                return

    # ---- what is there -----------------------------------------------------------------------------------------------------------

    async def _compare_when_told(self) -> None:
        while True:
            await self._compare.wait()
            self._compare.clear()
            try:
                await self._compare_all()
            except NotFound:
                log.debug("this cluster serves no ProvisioningRequests")
            except ApiError as error:
                log.warning("the requests for nodes could not be looked at", error=str(error))

    async def _compare_all(self) -> None:
        known = dict(self._asked)
        present = await self._api.list(PROVISIONING_REQUESTS, label_selector=names.PROVISIONS_LABEL)
        there = {(request.metadata.namespace, request.metadata.name) for request in present}
        for found, asked in known.items():
            if asked not in there and self._asked.get(found) == asked:
                del self._asked[found]
                self._keys.add(found)
        waiting = {(workload.namespace, request_name(workload)): workload for workload in self._ledger.all() if _wants(workload)}
        for request in present:
            await self._compare_one(request, waiting.get((request.metadata.namespace, request.metadata.name)))

    async def _compare_one(self, request: ProvisioningRequest, workload: Workload | None) -> None:
        asked = (request.metadata.namespace, request.metadata.name)
        if workload is None:
            await self._withdraw(*asked)
        elif request.failed:
            self._give_up(workload, f"the autoscaler adds no nodes: {request.failed}")
            await self._withdraw(*asked)
            self._asked.pop(workload.id, None)
            self._keys.add(workload.id)
        else:
            self._asked[workload.id] = asked


def _wants(workload: Workload) -> bool:
    return workload.state is State.PENDING and workload.reason is Reason.PROVISIONING


def _template_name(request: str, number: int) -> str:
    return f"{request}-{number}"


def _pods(rooms: Iterable[Room]) -> int:
    return sum(room.count for room in rooms)
