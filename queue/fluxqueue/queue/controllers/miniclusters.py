"""Makes MiniClusters: their objects, their place in the queue, their status, and their end.

A MiniCluster becomes a Secret with the certificate, Services and an Indexed Job that is suspended; the Job is queued like any other, as one
workload, of which its services pod is a part. Nothing of this is remembered here: each time something about a MiniCluster, its Job, its
pods or its row changes, what should be is worked out anew and what is missing is made. The Job comes last, so a Job that is there says that
all before it is; a crash in between repeats the others, which changes nothing (the certificate is created and never written again). The
services pod comes once the Job is in the queue: it names the Job, and waits gated.

Annotated Jobs go the same way, as far as they need it: their Secret and Service are made, the Job is there already.

The one object that depends on the allocation, the ConfigMap with the broker configuration, is written by `prepare`, which the release asks
for before it lets the Job go. Pods find it by name at their nodes; there is no other ordering.

A gang whose brokers do not find each other in time (a wrong certificate makes none of them say anything) goes back into the queue, and is
held after the third time.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterStatus
from fluxqueue.api.objects import Job, Node, Pod
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.certs import curve
from fluxqueue.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.events import Recorder, Severity, Subject
from fluxqueue.kube.kinds import CONFIG_MAPS, CUSTOM_RESOURCES, JOBS, MINICLUSTERS, NETWORK_POLICIES, PODS, SECRETS, SERVICES, Kind
from fluxqueue.kube.store import Change
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.minicluster.marks import InvalidMarks, identity_of
from fluxqueue.minicluster.pods import services_pod
from fluxqueue.minicluster.render import annotated_objects, objects
from fluxqueue.minicluster.rules import find_problems
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.fluxclusters import (
    DIGEST_ANNOTATION,
    annotated,
    deadline_of,
    digest_of,
    is_flux_cluster,
    job_served_by,
    minicluster_of_job,
    owner_uid,
    queued_job,
    shares_for,
)
from fluxqueue.queue.formations import Standing, status_of, time_left_s
from fluxqueue.queue.intake import owning_job_uid
from fluxqueue.queue.jobspecs import BESIDE
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Allocation, Setbacks, TakeBack, Workload, WorkloadId

__all__ = ["MiniClusterController", "MiniClusterSettings", "Requeue", "miniclusters_are_ours"]

log = structlog.get_logger()

_WORKERS = 8
_SETTLES_S = 0.3
"""What lasts shorter is not written into a status."""
_CHATTER_S = 2.0
"""How often a status is written whose state stays the same."""
_FORMS_TRIED = 3
_ASK_AGAIN_S = 1.0
_AFTER_THE_OTHERS = ("Job", "Pod")
"""The Job says that all before it is there; the services pod names the Job."""
_BY_KIND: dict[str, Kind[Any]] = {kind.kind: kind for kind in (CONFIG_MAPS, JOBS, NETWORK_POLICIES, PODS, SECRETS, SERVICES)}

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind (MiniCluster or Job), namespace and name."""
Requeue = Callable[[Sequence[TakeBack]], Awaitable[list[WorkloadId]]]


@dataclass(frozen=True, slots=True)
class MiniClusterSettings:
    """What the installation says.

    Attributes
    ----------
    image
        Ours, for the REST service where a MiniCluster names none.
    cluster_domain
        Of the cluster's DNS.
    """

    image: str
    cluster_domain: str


async def miniclusters_are_ours(api: Api) -> bool:
    """Whether MiniClusters are served, and by us; waits until the API server has said so.

    Two controllers over one kind would undo each other's work for ever. So where the Flux Operator serves it, or nobody does, there is no
    controller of ours, and the log says so; everything else of the queue runs as ever.
    """
    name = f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}"
    while True:
        try:
            found = await api.get(CUSTOM_RESOURCES, name)
        except (NotFound, Forbidden):
            log.info("miniclusters are not served here", crd=name)
            return False
        except ApiError as error:
            log.warning("whether miniclusters are ours is not known yet", error=str(error))
            await asyncio.sleep(_ASK_AGAIN_S)
            continue
        if found.metadata.label(names.OPERATOR_LABEL) == names.OPERATOR:
            return True
        log.error(
            "miniclusters are served by somebody else: their controller is not started; remove the Flux Operator and its CRD, then install "
            "this chart's, or set miniclusters.enabled to false",
            crd=name,
        )
        return False


class _Refused(Exception):
    """An object could not be made, for a reason that does not pass by itself."""


class MiniClusterController:
    """Keeps MiniClusters.

    Parameters
    ----------
    api, caches, ledger
        Where objects are made, what is there, and the queue.
    requeue
        Takes workloads back from their nodes.
    recorder
        Says on a person's object what went wrong.
    settings
        Of the installation.
    """

    def __init__(
        self, api: Api, caches: Caches, ledger: Ledger, requeue: Requeue, recorder: Recorder, settings: MiniClusterSettings
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._requeue = requeue
        self._recorder = recorder
        self._settings = settings
        self._keys: WorkQueue[Key] = WorkQueue("miniclusters")
        self._prepared: set[str] = set()
        """Uids of annotated Jobs whose Secret and Service were made by this process."""
        self._refusals: dict[str, str] = {}
        self._unwritten_since: dict[Key, float] = {}
        caches.miniclusters.add_handler(self._minicluster_changed)
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)
        ledger.subscribe(self._workload_changed)

    def look_at_everything(self) -> None:
        """Look at every MiniCluster and annotated Job, as at start and in a sweep."""
        for minicluster in self._caches.miniclusters.list():
            self._keys.add(_key(minicluster))
        for job in self._caches.jobs.list():
            self._touch_job(job)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._reconcile)

    # ---- events ----------------------------------------------------------------------------------------------------------------

    def _minicluster_changed(self, change: Change[MiniCluster]) -> None:
        if change.old is not None and change.new is not None and _same_wish(change.old, change.new):
            return  # its status, which we write
        self._keys.add(_key(change.obj))

    def _job_changed(self, change: Change[Job]) -> None:
        self._touch_job(change.obj)

    def _pod_changed(self, change: Change[Pod]) -> None:
        owner = change.obj.metadata.controller
        if owner is not None and job_served_by(change.obj) is not None:
            self._keys.add(("MiniCluster", change.obj.metadata.namespace, owner.name))
        else:
            self._touch(owning_job_uid(change.obj))

    def _workload_changed(self, found: WorkloadId) -> None:
        workload = self._ledger.get(found)
        if workload is not None:
            self._touch(workload.uid)

    def _touch(self, job_uid: str | None) -> None:
        job = self._caches.jobs.get_by_uid(job_uid) if job_uid else None
        if job is not None:
            self._touch_job(job)

    def _touch_job(self, job: Job) -> None:
        if not is_flux_cluster(job):
            return
        meta = job.metadata
        if owner_uid(job) is not None:
            self._keys.add(("MiniCluster", meta.namespace, meta.name))
        elif meta.uid not in self._prepared:
            self._keys.add(("Job", meta.namespace, meta.name))

    # ---- the release step ------------------------------------------------------------------------------------------------------

    async def prepare(self, job: Job, allocation: Allocation) -> None:
        """Write what the pods of a Flux cluster need before it is let go; nothing for other Jobs.

        Parameters
        ----------
        job
            As it is about to be released.
        allocation
            Its nodes by rank.

        Raises
        ------
        NotFound
            Its MiniCluster is gone.
        ApiError
            It could not be written: the release is tried again.
        """
        if not is_flux_cluster(job):
            return
        meta, template = job.metadata, job.spec.template
        around = self._caches.surroundings(meta.namespace)
        runtime = around.runtime_classes.get(template.spec.runtime_class_name or "")
        spec = with_defaults(template.spec, around.limit_ranges, runtime)
        hosts = [slot.node for slot in allocation.slots if slot.label != BESIDE]
        shares = shares_for(spec, template.metadata, meta.namespace, hosts, self._node_cpus)
        if owner_uid(job) is not None:
            minicluster = self._caches.minicluster_of(job)
            if minicluster is None:
                raise NotFound(404, "NotFound", f"the MiniCluster of Job {meta.namespace}/{meta.name} is gone")
            made = objects(
                minicluster,
                certificate=None,
                image=self._settings.image,
                shares=shares,
                cluster_domain=self._settings.cluster_domain,
            )
        else:
            if meta.uid not in self._prepared:
                await self._make_for(job)
            made = self._annotated_objects(job, certificate=None, shares=shares)
        await asyncio.gather(*(self._apply(each) for each in made if each["kind"] == "ConfigMap"))
        reach(Point.PREPARED)

    def _node_cpus(self, name: str) -> Decimal | None:
        node: Node | None = self._caches.nodes.get("", name)
        cpus = (node.status.allocatable or {}).get("cpu") if node is not None else None
        return parse_quantity(cpus) if cpus is not None else None

    # ---- one MiniCluster -------------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> float | None:
        kind, namespace, name = key
        if kind == "Job":
            job = self._caches.jobs.get(namespace, name)
            if job is not None and annotated(job) and not job.finished and self._caches.manages(namespace):
                await self._make_for(job)
            return None
        minicluster = self._caches.miniclusters.get(namespace, name)
        job = self._caches.jobs.get(namespace, name)
        if minicluster is None or minicluster.metadata.deletion_timestamp:
            self._unwritten_since.pop(key, None)
            if minicluster is not None:
                self._refusals.pop(minicluster.metadata.uid, None)
            if job is not None and owner_uid(job) is not None:
                await self._remove_job(job)
            return None
        own = job if job is not None and owner_uid(job) == minicluster.metadata.uid else None
        if own is None and minicluster.status.finished_at is None:
            await self._make(minicluster, job)
        elif own is not None:
            await self._follow_edits(minicluster, own)
        standing = self._standing(minicluster, own)
        await self._keep_services(standing)
        late = await self._watch_forming(standing)
        written = await self._tell(key, standing)
        if standing.job is not None and standing.job.finished and minicluster.spec.cleanup and minicluster.status.finished_at is not None:
            await self._delete(MINICLUSTERS, name, namespace, minicluster.metadata.uid)
        waits = [seconds for seconds in (late, written) if seconds is not None]
        return min(waits) if waits else None

    def _standing(self, minicluster: MiniCluster, job: Job | None) -> Standing:
        problems = list(find_problems(minicluster).errors)
        if not self._caches.manages(minicluster.metadata.namespace):
            namespace = minicluster.metadata.namespace
            problems.insert(
                0, f"namespace {namespace} is not managed: kubectl label namespace {namespace} {names.MANAGED_LABEL}=true lets it be queued"
            )
        if (refusal := self._refusals.get(minicluster.metadata.uid)) is not None:
            problems.append(refusal)
        if job is None:
            return Standing(minicluster, tuple(problems))
        workload = self._ledger.by_uid(job.metadata.uid)
        fluxjob = self._caches.fluxjob_of(job.metadata.uid)
        pods = self._caches.pods_of_job(job.metadata.uid)
        return Standing(
            minicluster,
            tuple(problems),
            job,
            tuple(pod for pod in pods if job_served_by(pod) is None),
            workload,
            self._ledger.allocation(workload.id) if workload is not None else None,
            cancelled=fluxjob is not None and fluxjob.spec.cancel,
            services=next((pod for pod in pods if job_served_by(pod) is not None and not pod.metadata.deletion_timestamp), None),
        )

    async def _make(self, minicluster: MiniCluster, other: Job | None) -> None:
        """Make everything that is missing; what stands in the way is told, not fought."""
        meta, spec = minicluster.metadata, minicluster.spec
        if find_problems(minicluster).errors or not self._caches.manages(meta.namespace):
            return
        if other is not None:
            if owner_uid(other) is not None:
                await self._remove_job(other)  # of a MiniCluster of this name that is gone
                return
            self._refuse(minicluster, f"Job {meta.name} is in the way: delete it, or give the MiniCluster another name")
            return
        certificate = curve.read(spec.flux.curve_cert) if spec.flux.curve_cert else curve.make(meta.name, self._ledger.clock())
        token = secrets.token_urlsafe(32) if spec.serves_rest and not spec.restful.token_secret else None
        rendered = objects(
            minicluster,
            certificate=certificate,
            image=self._settings.image,
            rest_token=token,
            cluster_domain=self._settings.cluster_domain,
        )
        identity = identity_of(minicluster)
        try:
            await asyncio.gather(*(self._put(each, identity.uid) for each in rendered if each["kind"] not in _AFTER_THE_OTHERS))
            reach(Point.MINICLUSTER_MADE)
            await asyncio.gather(*(self._put(queued_job(each, spec), identity.uid) for each in rendered if each["kind"] == "Job"))
        except (_Refused, Invalid, Forbidden) as error:
            self._refuse(minicluster, str(error))
            return
        self._refusals.pop(meta.uid, None)
        log.info("minicluster made", minicluster=f"{meta.namespace}/{meta.name}", uid=meta.uid, size=spec.size)

    async def _follow_edits(self, minicluster: MiniCluster, job: Job) -> None:
        """Apply what was edited since the Job was made, as far as that can be done."""
        spec = minicluster.spec
        if job.finished or find_problems(minicluster).errors:
            return
        workload = self._ledger.by_uid(job.metadata.uid)
        waits = workload is None or workload.state is State.PENDING
        if job.metadata.annotation(DIGEST_ANNOTATION) != digest_of(spec):
            pods = self._caches.pods_of_job(job.metadata.uid)
            if not waits or not job.spec.suspend or any(job_served_by(pod) is None for pod in pods):
                self._refuse(minicluster, "its spec was edited after its pods were made from it: delete the MiniCluster and apply it again")
                return
            log.info("minicluster edited while it waits: its Job is made anew", uid=minicluster.metadata.uid)
            await self._remove_job(job)
            return
        self._refusals.pop(minicluster.metadata.uid, None)
        patch = _edits(job, minicluster)
        if patch is None:
            return
        guard = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
        try:
            await self._api.patch(JOBS, job.metadata.name, body, namespace=job.metadata.namespace, patch_type=PatchType.MERGE)
        except Conflict:
            self._keys.add_after(_key(minicluster), _SETTLES_S)
        except Invalid as error:
            self._refuse(minicluster, f"the edit could not be applied to its Job: {error}")

    async def _keep_services(self, standing: Standing) -> None:
        """Have the services pod there while its Job is in the queue, gated where that waits, and gone when it is over.

        Whatever takes the Job back from its nodes (a requeue, a preemption, its user) suspends it; this pod has nobody else to end it.
        """
        minicluster, job, workload = standing.minicluster, standing.job, standing.workload
        meta, lost = minicluster.metadata, self._caches.lost
        served = None
        queued = workload is not None and not workload.taken_back
        if job is not None and queued and not (job.finished or job.metadata.deletion_timestamp):
            served = job.metadata.uid
        waits = workload is None or workload.state is State.PENDING
        going: list[Pod] = []
        for pod in self._caches.services_pods(meta.uid):
            if pod.metadata.deletion_timestamp:
                going.append(pod)
            elif job_served_by(pod) == served and (pod.spec.gated_by(names.GATE) or not waits):
                return
            elif not (pod.terminal and (job is None or job.finished)):  # what has ended may still be read
                log.info("services pod deleted", pod=f"{meta.namespace}/{pod.metadata.name}", uid=pod.metadata.uid)
                await self._delete(PODS, pod.metadata.name, meta.namespace, pod.metadata.uid)
                going.append(pod)
        if served is None or any(not pod.spec.node_name or not lost(pod.spec.node_name) for pod in going):
            return  # once they are gone, of which the watch tells
        body = services_pod(identity_of(minicluster), minicluster.spec, served)
        if body is None:
            return
        taken, name, number = {pod.metadata.name for pod in going}, body["metadata"]["name"], 1
        while body["metadata"]["name"] in taken:  # by one that cannot go, for nobody hears from its node
            number += 1
            body["metadata"]["name"] = f"{name}-{number}"
        try:
            await self._put(body, meta.uid)
        except (_Refused, Invalid, Forbidden) as error:
            self._refuse(minicluster, str(error))

    async def _watch_forming(self, standing: Standing) -> float | None:
        """Take a gang back whose brokers did not come online in time; else, the seconds it still has."""
        left = time_left_s(standing, self._ledger.clock())
        workload = standing.workload
        if left is None or left > 0 or workload is None:
            return left
        told = status_of(standing, self._ledger.clock()).message
        limit = standing.minicluster.spec.form_timeout_seconds
        tries = workload.setbacks.starts + 1
        message = f"MiniCluster {workload.namespace}/{workload.name} did not form within {limit} s: {told}"
        reason = Reason.START_TIMEOUT
        if tries >= _FORMS_TRIED:
            reason = Reason.HELD
            message += f"; it is held after {tries} tries: see the logs of its pods, then set spec.hold of its FluxJob to false"
        log.warning("a gang did not form", workload=workload.id, tries=tries, message=message)
        self._say(standing.minicluster, "NotFormed", message)
        await self._requeue([TakeBack(workload=workload.id, reason=reason, message=message, setbacks=_again(workload, tries))])
        return None

    async def _tell(self, key: Key, standing: Standing) -> float | None:
        """Write the status if it says something else for long enough; else, the seconds until then."""
        before, now = standing.minicluster.status, status_of(standing, self._ledger.clock())
        if _alike(before, now):
            self._unwritten_since.pop(key, None)
            return None
        loop_now = asyncio.get_running_loop().time()
        since = self._unwritten_since.setdefault(key, loop_now)
        wait_s = (_SETTLES_S if before.state != now.state else _CHATTER_S) - (loop_now - since)
        if wait_s > 0:
            return wait_s
        meta = standing.minicluster.metadata
        body = {"metadata": {"uid": meta.uid}, "status": _wire(now)}
        try:
            await self._api.patch(MINICLUSTERS, meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE, subresource="status")
        except (NotFound, Conflict):
            return None
        self._unwritten_since.pop(key, None)
        return None

    # ---- annotated Jobs --------------------------------------------------------------------------------------------------------

    async def _make_for(self, job: Job) -> None:
        """Make what an annotated Job needs beside itself."""
        meta = job.metadata
        if meta.uid in self._prepared:
            return
        try:
            rendered = self._annotated_objects(job, certificate=curve.make(meta.name, self._ledger.clock()))
            await asyncio.gather(*(self._put(each, meta.uid) for each in rendered))
        except (InvalidMarks, _Refused, Invalid, Forbidden) as error:
            subject = Subject("batch/v1", "Job", meta.namespace, meta.name, meta.uid)
            self._recorder.record(subject, "NotAFluxCluster", str(error), severity=Severity.WARNING)
            return
        self._prepared.add(meta.uid)

    def _annotated_objects(self, job: Job, **given: Any) -> list[Json]:
        return annotated_objects(minicluster_of_job(job), cluster_domain=self._settings.cluster_domain, **given)

    # ---- effects ---------------------------------------------------------------------------------------------------------------

    async def _put(self, body: Json, owner: str) -> None:
        """Create an object, or leave the one that is there if it is this owner's."""
        kind = _BY_KIND[body["kind"]]
        meta = body["metadata"]
        if kind is SERVICES:
            await self._apply(body)
            return
        try:
            await self._api.create(kind, body, meta["namespace"])
        except AlreadyExists:
            there = await self._api.get(kind, meta["name"], meta["namespace"])
            holder = there.metadata.controller
            if holder is None or holder.uid != owner:
                raise _Refused(
                    f"{kind.describe(meta['name'], meta['namespace'])} is in the way: delete it, or choose another name"
                ) from None

    async def _apply(self, body: Json) -> None:
        """Server-side apply with our field manager."""
        kind = _BY_KIND[body["kind"]]
        meta = body["metadata"]
        await self._api.patch(kind, meta["name"], body, namespace=meta["namespace"], patch_type=PatchType.APPLY, force=True)

    async def _remove_job(self, job: Job) -> None:
        if job.metadata.deletion_timestamp is None:
            await self._delete(JOBS, job.metadata.name, job.metadata.namespace, job.metadata.uid)

    async def _delete(self, kind: Kind[Any], name: str, namespace: str, uid: str) -> None:
        try:
            await self._api.delete(kind, name, namespace=namespace, uid=uid)
        except (NotFound, Conflict):
            return

    def _refuse(self, minicluster: MiniCluster, why: str) -> None:
        if self._refusals.get(minicluster.metadata.uid) != why:
            self._refusals[minicluster.metadata.uid] = why
            self._say(minicluster, "Refused", why)

    def _say(self, minicluster: MiniCluster, reason: str, message: str) -> None:
        meta = minicluster.metadata
        subject = Subject(MINICLUSTERS.api_version, "MiniCluster", meta.namespace, meta.name, meta.uid)
        self._recorder.record(subject, reason, message, severity=Severity.WARNING)


def _key(minicluster: MiniCluster) -> Key:
    return ("MiniCluster", minicluster.metadata.namespace, minicluster.metadata.name)


def _same_wish(old: MiniCluster, new: MiniCluster) -> bool:
    return (
        old.metadata.generation == new.metadata.generation and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
    ) and not (new.status.finished_at and new.spec.cleanup)


def _again(workload: Workload, tries: int) -> Setbacks:
    return msgspec.structs.replace(workload.setbacks, starts=tries)


def _alike(before: MiniClusterStatus, now: MiniClusterStatus) -> bool:
    def ordered(status: MiniClusterStatus) -> MiniClusterStatus:
        return msgspec.structs.replace(status, conditions=sorted(status.conditions or (), key=lambda condition: condition.type))

    return ordered(before) == ordered(now)


def _wire(status: MiniClusterStatus) -> Json:
    """For a merge patch: what is not said any more is taken out."""
    said = msgspec.to_builtins(status)
    return {field.encode_name: said.get(field.encode_name) for field in msgspec.structs.fields(status)}


def _edits(job: Job, minicluster: MiniCluster) -> Json | None:
    """What the Job does not say yet of the fields that may change while it lives."""
    spec, meta = minicluster.spec, job.metadata
    patch: Json = {}
    changed: Json = {}
    if job.spec.completions != spec.size or job.spec.parallelism != spec.size:
        changed |= {"completions": spec.size, "parallelism": spec.size}
    if job.spec.active_deadline_seconds != deadline_of(spec):
        changed["activeDeadlineSeconds"] = deadline_of(spec)
    if changed:
        patch["spec"] = changed
    wanted = {
        names.PRIORITY_ANNOTATION: str(spec.priority) if spec.priority is not None else None,
        names.DURATION_ANNOTATION: spec.duration or None,
    }
    annotations = {key: value for key, value in wanted.items() if meta.annotation(key) != value}
    labels = {names.QUEUE_LABEL: spec.queue or None} if (meta.label(names.QUEUE_LABEL) or "") != spec.queue else {}
    if annotations or labels:
        patch["metadata"] = {**({"annotations": annotations} if annotations else {}), **({"labels": labels} if labels else {})}
    return patch or None
