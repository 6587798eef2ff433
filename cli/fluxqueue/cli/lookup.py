"""From what a person types to the workloads that are meant, with everything that belongs to them.

A person knows the name of a Job, a Pod or a Deployment, not that of a FluxJob. A FluxJob's name follows from the object's kind, name
and uid, so an object that exists is found with two reads; only a bare name is looked for in the list. A pod of a Job means the Job, and
a Deployment means the FluxJobs of its pods. An object that exists but is not in the queue is told apart from one that does not exist,
because the remedy is another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.objects import Job, ObjectMeta, Part, Pod, PodSpec
from fluxqueue.cli.cluster import Cluster, ClusterError, NoSuchResource, NotFound
from fluxqueue.cli.explain import Observed, has_services
from fluxqueue.cli.listing import collection, list_jobs

__all__ = ["find", "fluxjobs_of", "of_owner"]

_OWNERS = {
    "deployment": "deployments",
    "deploy": "deployments",
    "replicaset": "replicasets",
    "rs": "replicasets",
    "statefulset": "statefulsets",
    "sts": "statefulsets",
}
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


class _Requirement(Part, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(Part, frozen=True):
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


class _OwnerSpec(Part, frozen=True):
    selector: _Selector = _Selector()


class _Owner(Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _OwnerSpec = _OwnerSpec()


class _Pods(Part, frozen=True):
    items: tuple[Pod, ...] = ()


def find(cluster: Cluster, namespace: str, name: str) -> list[Observed]:
    """The workloads a name means, with what belongs to them: see `fluxjobs_of`."""
    return [_observed(cluster, job) for job in fluxjobs_of(cluster, namespace, name)]


def fluxjobs_of(cluster: Cluster, namespace: str, name: str) -> list[FluxJob]:
    """The workloads a name means.

    Parameters
    ----------
    cluster
        To ask.
    namespace
        Where the name is.
    name
        A FluxJob's or an object's name, or ``kind/name`` with kubectl's kinds and short names.

    Returns
    -------
    list
        At least one; several for a Deployment and the like, or when objects of two kinds share a name.

    Raises
    ------
    ClusterError
        Nothing of that name, an object that is not in the queue, or what the server says.
    """
    kind, slash, rest = name.rpartition("/")
    kind = kind.lower().split(".")[0]
    if not slash:
        found = _by_bare_name(cluster, namespace, name)
    elif kind in ("fj", "fluxjob", "fluxjobs"):
        found = [_fluxjob(cluster, namespace, rest)]
    elif kind in ("job", "jobs"):
        found = [_of_job(cluster, namespace, _job(cluster, namespace, rest))]
    elif kind in ("pod", "pods", "po"):
        found = [_of_pod(cluster, namespace, _pod(cluster, namespace, rest))]
    elif kind in _OWNERS or kind.removesuffix("s") in _OWNERS:
        found = _of_owner(cluster, namespace, _OWNERS.get(kind) or _OWNERS[kind.removesuffix("s")], rest)
    elif matches := [
        job for job in _all(cluster, namespace) if job.spec.object_ref.kind.lower() == kind and job.spec.object_ref.name == rest
    ]:
        found = matches
    else:
        raise ClusterError(
            f'error: no FluxJob belongs to "{name}": a FluxJob, Job, Pod, Deployment, ReplicaSet or StatefulSet is understood'
        )
    return found


def _all(cluster: Cluster, namespace: str) -> list[FluxJob]:
    return [item.job for item in list_jobs(cluster, namespace)[0]]


def _by_bare_name(cluster: Cluster, namespace: str, name: str) -> list[FluxJob]:
    jobs = _all(cluster, namespace)
    if exact := [job for job in jobs if job.metadata.name == name]:
        return exact
    if matches := [job for job in jobs if job.spec.object_ref.name == name]:
        return matches
    # Not in the queue by that name: perhaps a pod of a Job, a Deployment, or an object that fluxqueue leaves alone. Each says so itself.
    looks: tuple[Callable[[], list[FluxJob]], ...] = (
        lambda: [_of_job(cluster, namespace, _job(cluster, namespace, name))],
        lambda: [_of_pod(cluster, namespace, _pod(cluster, namespace, name))],
        lambda: _of_owner(cluster, namespace, "deployments", name),
        lambda: _of_owner(cluster, namespace, "statefulsets", name),
    )
    for look in looks:
        try:
            return look()
        except NotFound:
            continue
    raise ClusterError(f'Error from server (NotFound): {names.FLUXJOBS}.{names.GROUP} "{name}" not found, nor an object of that name')


def _fluxjob(cluster: Cluster, namespace: str, name: str) -> FluxJob:
    try:
        return msgspec.json.decode(cluster.get(f"{collection(names.FLUXJOBS, namespace)}/{name}"), type=FluxJob)
    except NoSuchResource:
        raise ClusterError('error: the server doesn\'t have a resource type "fluxjobs" (is fluxqueue installed in this cluster?)') from None


def _job(cluster: Cluster, namespace: str, name: str) -> Job:
    return msgspec.json.decode(cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"), type=Job)


def _pod(cluster: Cluster, namespace: str, name: str) -> Pod:
    return msgspec.json.decode(cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), type=Pod)


def _pods(cluster: Cluster, namespace: str, selector: str) -> Sequence[Pod]:
    body = cluster.get(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector})
    return msgspec.json.decode(body, type=_Pods).items


def _of_job(cluster: Cluster, namespace: str, job: Job) -> FluxJob:
    return _named(cluster, namespace, "Job", job.metadata.name, job.metadata.uid)


def _of_pod(cluster: Cluster, namespace: str, pod: Pod) -> FluxJob:
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "Job":
        return _named(cluster, namespace, "Job", owner.name, owner.uid)
    if owner is not None and (served := pod.metadata.label(names.SERVICES_OF_LABEL)) is not None:
        return _named(cluster, namespace, "Job", owner.name, served)
    return _named(cluster, namespace, "Pod", pod.metadata.name, pod.metadata.uid)


def _named(cluster: Cluster, namespace: str, kind: str, name: str, uid: str) -> FluxJob:
    try:
        return _fluxjob(cluster, namespace, fluxjob_name(kind, name, uid))
    except NotFound:
        if members := [job for job in _all(cluster, namespace) if job.spec.object_ref.uid == uid]:
            return members[0]
    raise _not_queued(f"{kind.lower()}/{name}", namespace)


def _of_owner(cluster: Cluster, namespace: str, resource: str, name: str) -> list[FluxJob]:
    owner = msgspec.json.decode(cluster.get(f"/apis/apps/v1/namespaces/{namespace}/{resource}/{name}"), type=_Owner)
    uids = {pod.metadata.uid for pod in _pods(cluster, namespace, owner.spec.selector.text())}
    found = [job for job in _all(cluster, namespace) if of_owner(job, resource, name, uids)]
    if not found:
        raise _not_queued(f"{resource.removesuffix('s')}/{name}", namespace)
    return sorted(found, key=lambda job: job.metadata.name)


def of_owner(job: FluxJob, resource: str, name: str, pods: Collection[str]) -> bool:
    """Whether a FluxJob is of a Deployment or the like: of one of its pods (by uid), of a group with one of them, or of all as a gang."""
    ref = job.spec.object_ref
    concerned = {ref.uid, *(owner.uid for owner in job.metadata.owner_references or ())}
    return not concerned.isdisjoint(pods) or (f"{ref.kind.lower()}s", ref.name) == (resource, name)


def _not_queued(what: str, namespace: str) -> ClusterError:
    return ClusterError(
        f"error: {what} exists, but no FluxJob belongs to it: fluxqueue looks after objects created while namespace {namespace} "
        f"has the label {names.MANAGED_LABEL}=true, unless their pod template opts out"
    )


def _observed(cluster: Cluster, job: FluxJob) -> Observed:
    namespace, ref = job.metadata.namespace, job.spec.object_ref
    template: PodSpec | None = None
    stated = True
    pods: Sequence[Pod] = ()
    if ref.kind == "Job":
        pods = _pods(cluster, namespace, f"{_CONTROLLER_UID}={ref.uid}")
        if has_services(job):
            pods = [*pods, *_pods(cluster, namespace, f"{names.SERVICES_OF_LABEL}={ref.uid}")]
        try:
            owner = _job(cluster, namespace, ref.name)
        except NotFound:
            return Observed(job, pods=pods)
        template = owner.spec.template.spec
        stated = owner.metadata.annotation(names.DURATION_ANNOTATION) is not None or owner.spec.active_deadline_seconds is not None
    elif ref.kind == "Pod":
        try:
            pod = _pod(cluster, namespace, ref.name)
        except NotFound:
            return Observed(job)
        pods, template = [pod], pod.spec
        stated = pod.metadata.annotation(names.DURATION_ANNOTATION) is not None or pod.spec.active_deadline_seconds is not None
    elif job.status.jobid is not None:
        pods = _pods(cluster, namespace, f"{names.JOBID_LABEL}={job.status.jobid}")
    return Observed(job, template, stated, pods)
