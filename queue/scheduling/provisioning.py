"""Requests nodes from the cluster autoscaler, for work that no present node could hold.

A workload with the reason ``Provisioning`` has one ProvisioningRequest, with a pod template for each kind of its pods. The request only
asks for nodes. When they come, the graph has them, the work is matched and pinned like any other, and the request is deleted with the
reason. The FluxJob owns both objects, so they are deleted with it in any case.

Names follow from the workload and its request. A request that is repeated after a crash finds its object, and a changed request gets
another object. The resync lists all ProvisioningRequests of the queue. It deletes those that no workload waits for and creates those again
that somebody deleted. If the autoscaler failed one, an event on the user's object reports it, and it is requested again after some minutes.
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
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS, POD_TEMPLATES, PROVISIONING_REQUESTS
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.minicluster_jobs import services_of, with_flux
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.scheduling.node_shapes import (
    MOST_TEMPLATES,
    PROVISIONING_CLASS,
    PodSetTemplate,
    pod_sets_of,
    request_name,
    template_body,
)
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Provisioner"]

log = structlog.get_logger()

_WORKERS = 2
_SOON_S = 1.0
_RETRY_S = 300.0
"""After the autoscaler failed a request, or the API server did not accept it."""

Pods = Iterable[tuple[Mapping[str, str], PodSpec, int]]


class Provisioner:
    """Keeps ProvisioningRequests.

    Parameters
    ----------
    api, caches, ledger
        The API server, the objects of the cluster, and the pending workloads.
    recorder
        Records on the user's object that no nodes will come.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("provisioning")
        self._requested: dict[WorkloadId, tuple[str, str]] = {}
        """Namespace and name of the requests that are known to exist."""
        self._not_before: dict[WorkloadId, float] = {}
        self._compare_wanted = asyncio.Event()
        ledger.subscribe(self._keys.add)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compare_when_wanted())
            group.create_task(run_workers(self._keys, _WORKERS, self._reconcile))

    def resync(self) -> None:
        """Check every workload that waits for nodes, and every ProvisioningRequest."""
        for workload in self._ledger.all():
            if _wants(workload):
                self._keys.add(workload.id)
        self._compare_wanted.set()

    async def _reconcile(self, workload_id: WorkloadId) -> float | None:
        workload, requested = self._ledger.get(workload_id), self._requested.get(workload_id)
        wanted = (workload.namespace, request_name(workload)) if workload is not None and _wants(workload) else None
        if requested is not None and requested != wanted:
            await self._delete(*requested)
            self._requested.pop(workload_id, None)
        if workload is None or wanted is None:
            self._not_before.pop(workload_id, None)
            return None
        if requested == wanted:
            return None
        if (wait_s := self._not_before.get(workload_id, 0.0) - asyncio.get_running_loop().time()) > 0:
            return wait_s
        fluxjob = self._caches.fluxjob_of(workload.uid)
        if fluxjob is None:
            return _SOON_S
        try:
            pod_sets = pod_sets_of(self._pods_of(workload), self._node_selector(workload))
        except (InvalidInjection, InvalidRequest):
            return _SOON_S  # it was edited since: the intake is about to report it
        if not pod_sets:
            return _SOON_S
        if len(pod_sets) > MOST_TEMPLATES:
            self._report_failure(
                workload, f"its pods are of {len(pod_sets)} kinds: a request to the autoscaler has at most {MOST_TEMPLATES}"
            )
            return _RETRY_S
        try:
            await self._create(workload, pod_sets, fluxjob, wanted[1])
        except NotFound:
            await self._delete(*wanted)
            kind = f"{PROVISIONING_REQUESTS.kind}s ({PROVISIONING_REQUESTS.api_version})"
            self._report_failure(workload, f"no nodes can be requested: this cluster serves no {kind}")
            return _RETRY_S
        except (Invalid, Forbidden) as error:
            await self._delete(*wanted)
            self._report_failure(workload, f"no nodes could be requested from the autoscaler: {error}")
            return _RETRY_S
        self._requested[workload_id] = wanted
        return None

    async def _create(self, workload: Workload, pod_sets: Sequence[PodSetTemplate], fluxjob: FluxJob, name: str) -> None:
        """Create the templates and the request. Objects that exist already are the same."""
        owner = [FLUXJOBS.reference(fluxjob, controller=True)]
        labels = {names.PROVISIONS_LABEL: workload.uid}
        sets: list[dict[str, Any]] = []
        for number, pod_set in enumerate(pod_sets):
            metadata = {"name": _template_name(name, number), "labels": labels, "ownerReferences": owner}
            with contextlib.suppress(AlreadyExists):
                await self._api.create(POD_TEMPLATES, template_body(pod_set, metadata), workload.namespace)
            sets.append({"podTemplateRef": {"name": metadata["name"]}, "count": pod_set.count})
        body = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
            "spec": {"provisioningClassName": PROVISIONING_CLASS, "podSets": sets},
        }
        with contextlib.suppress(AlreadyExists):
            await self._api.create(PROVISIONING_REQUESTS, body, workload.namespace)
        log.info("provisioning.requested", workload=workload.id, uid=workload.uid, request=name, pods=_pods(pod_sets))

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
                yield services.metadata.labels or {}, with_defaults(services.spec, around.limit_ranges, runtime), 1
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
        log.warning("provisioning.failed", workload=workload.id, uid=workload.uid, reason=sentence)
        message = f"{sentence}; it is requested again in {_RETRY_S / 60:.0f} minutes"
        for subject in subjects_of(workload, self._caches):
            self._recorder.record(subject, "ProvisioningFailed", message, severity=Severity.WARNING)

    async def _delete(self, namespace: str, name: str) -> None:
        """Delete a request and its templates."""
        with contextlib.suppress(NotFound):
            await self._api.delete(PROVISIONING_REQUESTS, name, namespace=namespace)
        for number in range(MOST_TEMPLATES):
            try:
                await self._api.delete(POD_TEMPLATES, _template_name(name, number), namespace=namespace)
            except NotFound:
                return

    # ---- comparison with the cluster ---------------------------------------------------------------------------------------------

    async def _compare_when_wanted(self) -> None:
        while True:
            await self._compare_wanted.wait()
            self._compare_wanted.clear()
            try:
                await self._compare_all()
            except NotFound:
                log.debug("provisioning.not_served")
            except ApiError as error:
                log.warning("provisioning.list_failed", error=str(error))

    async def _compare_all(self) -> None:
        known = dict(self._requested)
        present = await self._api.list(PROVISIONING_REQUESTS, label_selector=names.PROVISIONS_LABEL)
        existing = {(request.metadata.namespace, request.metadata.name) for request in present}
        for workload_id, requested in known.items():
            if requested not in existing and self._requested.get(workload_id) == requested:
                del self._requested[workload_id]
                self._keys.add(workload_id)
        waiting = {(workload.namespace, request_name(workload)): workload for workload in self._ledger.all() if _wants(workload)}
        for request in present:
            await self._compare_one(request, waiting.get((request.metadata.namespace, request.metadata.name)))

    async def _compare_one(self, request: ProvisioningRequest, workload: Workload | None) -> None:
        requested = (request.metadata.namespace, request.metadata.name)
        if workload is None:
            await self._delete(*requested)
        elif request.failed:
            self._report_failure(workload, f"the autoscaler adds no nodes: {request.failed}")
            await self._delete(*requested)
            self._requested.pop(workload.id, None)
            self._keys.add(workload.id)
        else:
            self._requested[workload.id] = requested


def _wants(workload: Workload) -> bool:
    return workload.state is State.PENDING and workload.reason is Reason.PROVISIONING


def _template_name(request: str, number: int) -> str:
    return f"{request}-{number}"


def _pods(pod_sets: Iterable[PodSetTemplate]) -> int:
    return sum(pod_set.count for pod_set in pod_sets)
