"""Requests nodes from an autoscaler, for work that no present node could hold.

A workload with the reason ``Provisioning`` has one request for nodes, in the way that its FluxQueue says: a
ProvisioningRequest (`fluxqueue.queue.scheduling.provisioning.provisioning_requests`), or pods that no
scheduler binds (`fluxqueue.queue.scheduling.provisioning.room_pods`). The request only asks for nodes. When
they come, the graph has them, the work is matched and pinned like any other, and the request is deleted with
the reason.

The key of a request follows from the workload and what it needs. A request that is repeated after a crash
finds its objects, and a changed request gets others. The resync lists all requests. It deletes those that no
workload waits for and repairs those of which something is missing. If the autoscaler failed one, an event on
the user's object reports it, and it is requested again after some minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, Provision
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import Key
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.minicluster_jobs import services_of, with_flux
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.scheduling.provisioning.node_requests import (
    NodeRequest,
    NodeRequester,
    NotRequested,
    PresentRequest,
    pod_sets_of,
)
from fluxqueue.queue.scheduling.provisioning.provisioning_requests import ProvisioningRequests
from fluxqueue.queue.scheduling.provisioning.room_pods import RoomPods
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Provisioner"]

log = structlog.get_logger()

_WORKERS = 2
_SOON_S = 1.0
_LONGEST_PAUSE_S = 60.0
"""Before the requests of a former leader are listed again."""
_RETRY_S = 300.0
"""After the autoscaler failed a request, or the API server did not accept it."""

Pods = Iterable[tuple[Mapping[str, str], PodSpec, int]]

Wanted = tuple[Provision, Key]
"""A request for nodes: in which way, and its key."""


class Provisioner:
    """Keeps requests for nodes.

    Parameters
    ----------
    api, caches, ledger
        The API server, the objects of the cluster, and the pending workloads.
    recorder
        Records on the user's object that no nodes will come.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("provisioning")
        self._ways: Mapping[Provision, NodeRequester] = {
            Provision.GATE: ProvisioningRequests(api),
            Provision.PODS: RoomPods(api, caches.own_namespace, ledger.wall, self._keys.add),
        }
        self._requested: dict[WorkloadId, Wanted] = {}
        """Requests of which objects may exist."""
        self._incomplete: dict[WorkloadId, object] = {}
        """Those of which some may be missing, each with a mark: it is another one if it was found again."""
        self._told: set[WorkloadId] = set()
        """Work that knows that its request waits for others."""
        self._not_before: dict[WorkloadId, float] = {}
        self._adopted: set[Provision] = set()
        """The ways whose requests of earlier leaders are known: before, none is made."""
        self._compare_wanted = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        self._compare_wanted.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compare_when_wanted())
            group.create_task(run_workers(self._keys, _WORKERS, self._reconcile))

    def resync(self) -> None:
        """Check every workload that waits for nodes, and every request."""
        self._enqueue_waiting()
        self._compare_wanted.set()

    def _enqueue_waiting(self) -> None:
        """Check every workload that waits for nodes, the oldest first, so that it has its turn first."""
        waiting = filter(_waits_for_nodes, self._ledger.all())
        for workload in sorted(waiting, key=lambda each: (each.submitted_at, each.id)):
            self._keys.add(workload.id)

    def workload_changed(self, workload: WorkloadId) -> None:
        """Enqueue a workload: it may need nodes, or no more."""
        self._keys.add(workload)

    def queue_changed(self, change: Change[FluxQueue]) -> None:
        """Compare all requests if a queue adds nodes otherwise."""
        if (
            change.old is None
            or change.new is None
            or change.old.spec.provision is not change.new.spec.provision
        ):
            self.resync()

    def _wanted(self, workload: Workload | None) -> Wanted | None:
        if workload is None or not _waits_for_nodes(workload):
            return None
        queue = self._caches.fluxqueues.get("", workload.queue)
        way = queue.spec.provision if queue is not None else Provision.NONE
        return (way, self._ways[way].key(workload)) if way in self._ways else None

    async def _reconcile(self, workload_id: WorkloadId) -> float | None:
        workload, requested = self._ledger.get(workload_id), self._requested.get(workload_id)
        wanted = self._wanted(workload)
        if requested is not None and requested != wanted:
            await self._delete(workload_id, requested)
            requested = None
        if workload is None or wanted is None:
            self._not_before.pop(workload_id, None)
            self._told.discard(workload_id)
            return None
        if requested is not None and workload_id not in self._incomplete:
            return None
        if (wait_s := self._not_before.get(workload_id, 0.0) - asyncio.get_running_loop().time()) > 0:
            return wait_s
        if wanted[0] not in self._adopted:
            return _SOON_S
        request = self._request(workload, wanted[1])
        if request is None:
            return _SOON_S
        self._requested[workload_id] = wanted
        self._incomplete[workload_id] = mark = object()
        try:
            await self._ways[wanted[0]].create(request)
        except NotRequested as refusal:
            if refusal.waits:
                if workload_id not in self._told:
                    self._told.add(workload_id)
                    self._report(workload, str(refusal))
                return None
            await self._delete(workload_id, wanted)
            self._report_failure(workload, str(refusal))
            return _RETRY_S
        if self._incomplete.get(workload_id) is mark:  # else some was missing meanwhile, and it is made again
            del self._incomplete[workload_id]
        self._told.discard(workload_id)
        log.info(
            "provisioning.requested",
            workload=workload.id,
            uid=workload.uid,
            request=wanted[1][1],
            pods=request.pods,
        )
        return None

    def _request(self, workload: Workload, key: Key) -> NodeRequest | None:
        """Return its request; None if its objects are not known as they are now."""
        fluxjob = self._caches.fluxjob_of(workload.uid)
        if fluxjob is None:
            return None
        try:
            pod_sets = pod_sets_of(self._pods_of(workload), self._node_selector(workload), workload)
        except (InvalidInjection, InvalidRequest):
            return None  # it was edited since: the intake is about to report it
        return NodeRequest(key, workload, pod_sets, fluxjob) if pod_sets else None

    async def _delete(self, workload_id: WorkloadId, requested: Wanted) -> None:
        way, key = requested
        await self._ways[way].delete(key)
        if self._requested.get(workload_id) == requested:
            del self._requested[workload_id]
            self._incomplete.pop(workload_id, None)

    def _pods_of(self, workload: Workload) -> Pods:
        """Labels, complete spec and number of its pods."""
        if workload.kind == "Job":
            job = self._caches.jobs.get_by_uid(workload.uid)
            if job is None:
                return
            template = job.spec.template
            spec = with_flux(template.spec, template.metadata, workload.namespace)
            around = self._caches.cluster_context(workload.namespace)
            runtime = around.runtime_classes.get(spec.runtime_class_name or "")
            services = services_of(self._caches.minicluster_of(job), job)
            pods = workload.pods - (1 if services is not None else 0)
            yield template.metadata.labels or {}, with_defaults(spec, around.limit_ranges, runtime), pods
            if services is not None:
                yield (
                    services.metadata.labels or {},
                    with_defaults(services.spec, around.limit_ranges, runtime),
                    1,
                )
        elif workload.release_mode is ReleaseMode.GROUP:
            for member in self._caches.members_of(workload)[: workload.pods]:
                yield member.metadata.labels or {}, member.spec, 1
        elif (pod := self._caches.pods.get_by_uid(workload.uid)) is not None:
            yield pod.metadata.labels or {}, pod.spec, 1

    def _node_selector(self, workload: Workload) -> Mapping[str, str]:
        defaults = self._caches.cluster_context(workload.namespace).queues.get(workload.queue)
        return defaults.node_selector if defaults is not None else {}

    def _report_failure(self, workload: Workload, sentence: str) -> None:
        """Report that no nodes will come, and request none for a while."""
        self._not_before[workload.id] = asyncio.get_running_loop().time() + _RETRY_S
        self._report(workload, f"{sentence}; it is requested again in {_RETRY_S / 60:.0f} minutes")

    def _report(self, workload: Workload, sentence: str) -> None:
        log.warning("provisioning.failed", workload=workload.id, uid=workload.uid, reason=sentence)
        for subject in subjects_of(workload, self._caches):
            self._recorder.record(subject, "ProvisioningFailed", sentence, severity=Severity.WARNING)

    # ---- comparison with the cluster -----------------------------------------------------------------------

    async def _compare_when_wanted(self) -> None:
        pause_s = _SOON_S
        while True:
            await self._compare_wanted.wait()
            self._compare_wanted.clear()
            for way in self._ways:
                try:
                    await self._compare_all(way)
                except NotFound:
                    log.debug("provisioning.not_served")
                except ApiError as error:
                    log.warning("provisioning.list_failed", error=str(error))
                    if way not in self._adopted:
                        asyncio.get_running_loop().call_later(pause_s, self._compare_wanted.set)
                        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    continue
                if way not in self._adopted:
                    self._adopted.add(way)
                    self._enqueue_waiting()

    async def _compare_all(self, way: Provision) -> None:
        known = {
            workload_id: requested
            for workload_id, requested in self._requested.items()
            if requested[0] is way
        }
        present = await self._ways[way].present()
        existing = {request.key for request in present if request.complete}
        for workload_id, requested in known.items():
            if requested[1] not in existing and self._requested.get(workload_id) == requested:
                self._incomplete[workload_id] = object()
                self._keys.add(workload_id)
        waiting = {
            wanted[1]: row
            for row in self._ledger.all()
            if (wanted := self._wanted(row)) is not None and wanted[0] is way
        }
        if way not in self._adopted:
            for key in {request.key for request in present} & waiting.keys():
                self._ways[way].adopt(waiting[key])
        for request in present:
            await self._compare_one(way, request, waiting.get(request.key))

    async def _compare_one(self, way: Provision, request: PresentRequest, workload: Workload | None) -> None:
        if workload is None:
            await self._ways[way].delete(request.key)
        elif request.failed:
            self._report_failure(workload, request.failed)
            await self._delete(workload.id, (way, request.key))
            self._keys.add(workload.id)
        elif request.complete:
            self._requested[workload.id] = way, request.key


def _waits_for_nodes(workload: Workload) -> bool:
    return workload.state is State.PENDING and workload.reason is Reason.PROVISIONING
