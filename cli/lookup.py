"""The search for the workloads of a name that a person types, and for their objects.

People know the name of a Job, a Pod or a Deployment, not that of its FluxJob. The name of a FluxJob is
derived from kind, name and uid of the object, so the FluxJob of an existing object is found with two reads.
Only a bare name is searched in the list, and a FluxJob that has another name (see
`fluxqueue.api.fluxjobs.fluxjob_names`). A pod of a Job or a group stands for that, a Deployment for the
FluxJobs of its pods, and a MiniCluster for its Job, which has the same name.
An object that exists but is not in the queue gets another message than one that does not exist, because the
remedy differs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.cli.api_client import ApiClient, ClusterError, NoSuchResource, ObjectNotFound
from fluxqueue.cli.explain import Observed, has_services
from fluxqueue.cli.jobs import same_kind
from fluxqueue.cli.listing import NOT_INSTALLED, collection, list_jobs

__all__ = ["find", "fluxjobs_of", "is_of_gang", "observed", "of_owner"]

_OWNERS = {
    "deployment": "deployments",
    "deploy": "deployments",
    "replicaset": "replicasets",
    "rs": "replicasets",
    "statefulset": "statefulsets",
    "sts": "statefulsets",
}
_SHOWN_WITHIN = timedelta(minutes=2)
"""How long a new object of a managed namespace may be without its FluxJob,
with a margin for clocks that differ."""
_WAIT_S = 65.0
"""In a burst, started work has its FluxJob a minute after its submission."""
_POLL_S = 0.5


class _NotShownYet(ClusterError):
    """The object is new and in a managed namespace, and its FluxJob is not there."""


class _Requirement(PartialObject, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(PartialObject, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None

    def text(self) -> str:
        parts = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        for need in self.match_expressions or ():
            match need.operator:
                case "Exists":
                    parts.append(need.key)
                case "DoesNotExist":
                    parts.append(f"!{need.key}")
                case other:
                    parts.append(f"{need.key} {other.lower()} ({','.join(need.values or ())})")
        return ",".join(parts)


class _OwnerSpec(PartialObject, frozen=True):
    selector: _Selector = _Selector()


class _Owner(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _OwnerSpec = _OwnerSpec()


class _Pods(PartialObject, frozen=True):
    items: tuple[Pod, ...] = ()


def find(client: ApiClient, namespace: str, name: str) -> list[Observed]:
    """Return the workloads of a name with their objects; see `fluxjobs_of`."""
    return [observed(client, job) for job in fluxjobs_of(client, namespace, name)]


def fluxjobs_of(client: ApiClient, namespace: str, name: str) -> list[FluxJob]:
    """Return the FluxJobs of a name.

    Parameters
    ----------
    client
        The API server.
    namespace
        Namespace of the name.
    name
        Name of a FluxJob or of an object, or ``kind/name`` with kubectl's kinds and short names.

    Returns
    -------
    list
        At least one; several for a Deployment and similar kinds, or if objects of two kinds have the same
        name.

    Raises
    ------
    ClusterError
        The name does not exist, the object is not in the queue, or the server refuses.

    Notes
    -----
    A FluxJob is created seconds after its object, in a burst up to a minute. So the lookup is repeated for a
    new object, for at most `_WAIT_S`.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return _found(client, namespace, name)
        except _NotShownYet:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def _found(client: ApiClient, namespace: str, name: str) -> list[FluxJob]:
    kind, slash, rest = name.rpartition("/")
    kind = kind.lower().split(".")[0]
    if not rest:
        raise ClusterError(f"error: {name!r} has no name: write lammps, or job/lammps")
    if not slash:
        found = _by_bare_name(client, namespace, name)
    elif kind in ("fj", "fluxjob", "fluxjobs"):
        found = [_fluxjob(client, namespace, rest)]
    elif kind in ("job", "jobs"):
        found = [_of_job(client, namespace, _job(client, namespace, rest))]
    elif kind in ("pod", "pods", "po"):
        found = [_of_pod(client, namespace, _pod(client, namespace, rest))]
    elif kind in ("minicluster", "miniclusters", "mc"):
        found = [_of_minicluster(client, namespace, rest)]
    elif kind in _OWNERS or kind.removesuffix("s") in _OWNERS:
        found = _of_owner(client, namespace, _OWNERS.get(kind) or _OWNERS[kind.removesuffix("s")], rest)
    elif matches := [
        job
        for job in _all(client, namespace)
        if same_kind(job.spec.object_ref.kind, kind) and job.spec.object_ref.name == rest
    ]:
        found = matches
    else:
        raise ClusterError(
            f'error: no FluxJob belongs to "{name}": a FluxJob, Job, Pod, Deployment, ReplicaSet, '
            "StatefulSet, MiniCluster, or a group that waits or runs, such as podgroup/NAME, is understood"
        )
    return found


def _all(client: ApiClient, namespace: str) -> list[FluxJob]:
    return [item.job for item in list_jobs(client, namespace)[0]]


def _by_bare_name(client: ApiClient, namespace: str, name: str) -> list[FluxJob]:
    jobs = _all(client, namespace)
    if exact := [job for job in jobs if job.metadata.name == name]:
        return exact
    if matches := [job for job in jobs if job.spec.object_ref.name == name]:
        return matches
    # No FluxJob has that name: it may be a pod of a Job, a Deployment, or an object outside the queue. Each
    # lookup raises its own error.
    lookups: tuple[Callable[[], list[FluxJob]], ...] = (
        lambda: [_of_job(client, namespace, _job(client, namespace, name))],
        lambda: [_of_pod(client, namespace, _pod(client, namespace, name))],
        lambda: _of_owner(client, namespace, "deployments", name),
        lambda: _of_owner(client, namespace, "statefulsets", name),
    )
    for lookup in lookups:
        try:
            return lookup()
        except ObjectNotFound:
            continue
    raise ObjectNotFound(
        404, "NotFound", f'{names.FLUXJOBS}.{names.GROUP} "{name}" not found, nor an object of that name'
    )


def _fluxjob(client: ApiClient, namespace: str, name: str) -> FluxJob:
    try:
        return msgspec.json.decode(
            client.get(f"{collection(names.FLUXJOBS, namespace)}/{name}"), type=FluxJob
        )
    except NoSuchResource:
        raise ClusterError(NOT_INSTALLED.format(names.FLUXJOBS)) from None


def _job(client: ApiClient, namespace: str, name: str) -> Job:
    return msgspec.json.decode(client.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"), type=Job)


def _pod(client: ApiClient, namespace: str, name: str) -> Pod:
    return msgspec.json.decode(client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), type=Pod)


def _pods(client: ApiClient, namespace: str, selector: str) -> Sequence[Pod]:
    body = client.get(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector})
    return msgspec.json.decode(body, type=_Pods).items


def _of_job(client: ApiClient, namespace: str, job: Job) -> FluxJob:
    return _named(client, namespace, "Job", job.metadata.name, job.metadata.uid, job.metadata)


def _of_minicluster(client: ApiClient, namespace: str, name: str) -> FluxJob:
    job = _job(client, namespace, name)
    owner = job.metadata.controller
    if owner is None or owner.kind != "MiniCluster":
        raise ClusterError(f"error: job/{name} belongs to no MiniCluster: name it as job/{name}")
    return _of_job(client, namespace, job)


def _of_pod(client: ApiClient, namespace: str, pod: Pod) -> FluxJob:
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "Job":
        return _named(client, namespace, "Job", owner.name, owner.uid, pod.metadata)
    if owner is not None and (served := pod.metadata.label(names.SERVICES_OF_LABEL)) is not None:
        return _named(client, namespace, "Job", owner.name, served, pod.metadata)
    with contextlib.suppress(ObjectNotFound):
        job = _fluxjob(client, namespace, fluxjob_name("Pod", pod.metadata.name, pod.metadata.uid))
        if job.spec.object_ref.uid == pod.metadata.uid:
            return job
    if gangs := [job for job in _all(client, namespace) if is_of_gang(pod, job)]:
        return gangs[0]
    return _named(client, namespace, "Pod", pod.metadata.name, pod.metadata.uid, pod.metadata)


def is_of_gang(pod: Pod, job: FluxJob) -> bool:
    """True if a pod is one of a group: both have one allocation, or the pod owns the FluxJob,
    as long as it waits.
    """
    ref, meta = job.spec.object_ref, pod.metadata
    if ref.kind in ("Job", "Pod"):
        return False
    if (jobid := meta.label(names.JOBID_LABEL)) is not None and job.status.jobid is not None:
        return jobid == str(job.status.jobid)
    return meta.uid in {owner.uid for owner in job.metadata.owner_references or ()}


def _named(client: ApiClient, namespace: str, kind: str, name: str, uid: str, asked: ObjectMeta) -> FluxJob:
    """Return the FluxJob of an object; ``asked`` is the metadata of the object that the person named:
    itself, or a pod of it.
    """
    with contextlib.suppress(ObjectNotFound):
        job = _fluxjob(client, namespace, fluxjob_name(kind, name, uid))
        if job.spec.object_ref.uid == uid:
            return job
    if members := [job for job in _all(client, namespace) if job.spec.object_ref.uid == uid]:
        return members[0]
    if _is_new(asked):
        raise _not_shown_yet(f"{kind.lower()}/{name}")
    raise _not_queued(f"{kind.lower()}/{name}", namespace)


def _of_owner(client: ApiClient, namespace: str, resource: str, name: str) -> list[FluxJob]:
    owner = msgspec.json.decode(
        client.get(f"/apis/apps/v1/namespaces/{namespace}/{resource}/{name}"), type=_Owner
    )
    pods = _pods(client, namespace, owner.spec.selector.text())
    uids = {pod.metadata.uid for pod in pods}
    jobs = [job for job in _all(client, namespace) if of_owner(job, resource, name, uids)]
    if not jobs and any(_is_new(pod.metadata) for pod in pods):
        raise _not_shown_yet(f"{resource.removesuffix('s')}/{name}")
    if not jobs:
        raise _not_queued(f"{resource.removesuffix('s')}/{name}", namespace)
    return sorted(jobs, key=lambda job: job.metadata.name)


def of_owner(job: FluxJob, resource: str, name: str, pods: Collection[str]) -> bool:
    """True if a FluxJob belongs to a Deployment or similar:
    to one of its pods (by uid), a group of them, or all of them as a gang.
    """
    ref = job.spec.object_ref
    concerned = {ref.uid, *(owner.uid for owner in job.metadata.owner_references or ())}
    return not concerned.isdisjoint(pods) or (f"{ref.kind.lower()}s", ref.name) == (resource, name)


def _is_new(meta: ObjectMeta) -> bool:
    """True for an object of the queue whose FluxJob may not be there yet."""
    return bool(meta.label(names.SEEN_LABEL)) and _age(meta) < _SHOWN_WITHIN


def _age(meta: ObjectMeta) -> timedelta:
    """Return the age of an object by the clock of this machine;
    a long one if its creation time cannot be read.
    """
    try:
        return datetime.now(UTC) - datetime.fromisoformat(meta.creation_timestamp or "")
    except ValueError:
        return timedelta.max


def _not_shown_yet(what: str) -> ClusterError:
    return _NotShownYet(
        f"error: {what} has no FluxJob yet: fluxqueue creates it within seconds, in a burst within a "
        "minute. Repeat the command; if it still has none, `kubectl fluxqueue doctor` says what is wrong"
    )


def _not_queued(what: str, namespace: str) -> ClusterError:
    return ClusterError(
        f"error: {what} exists, but no FluxJob belongs to it: fluxqueue queues objects that are created "
        f"while namespace {namespace} has the label {names.MANAGED_LABEL}=true, "
        "unless their pod template opts out"
    )


def observed(client: ApiClient, job: FluxJob) -> Observed:
    """Return a workload with its objects, as they are now."""
    namespace, ref = job.metadata.namespace, job.spec.object_ref
    template: PodSpec | None = None
    stated = True
    pods: Sequence[Pod] = ()
    if ref.kind == "Job":
        pods = _pods(client, namespace, f"{names.CONTROLLER_UID_LABEL}={ref.uid}")
        if has_services(job):
            pods = [*pods, *_pods(client, namespace, f"{names.SERVICES_OF_LABEL}={ref.uid}")]
        try:
            owner = _job(client, namespace, ref.name)
        except ObjectNotFound:
            return Observed(job, pods=pods)
        template = owner.spec.template.spec
        stated = (
            owner.metadata.annotation(names.DURATION_ANNOTATION) is not None
            or owner.spec.active_deadline_seconds is not None
        )
    elif ref.kind == "Pod":
        try:
            pod = _pod(client, namespace, ref.name)
        except ObjectNotFound:
            return Observed(job)
        pods, template = [pod], pod.spec
        stated = (
            pod.metadata.annotation(names.DURATION_ANNOTATION) is not None
            or pod.spec.active_deadline_seconds is not None
        )
    elif job.status.jobid is not None:
        pods = _pods(client, namespace, f"{names.JOBID_LABEL}={job.status.jobid}")
    return Observed(job, template, stated, pods)
