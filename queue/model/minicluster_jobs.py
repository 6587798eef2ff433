"""The Job of a Flux cluster, as the queue reads it and writes it.

A Flux cluster is queued as the Job that it consists of, by the ordinary intake. A MiniCluster owns that Job,
or a person annotated it. Three things are particular to it, and all are pure readings of objects and
allocation: what the queue must find on the Job (its queue, priority and duration, and that the queue
suspended it), what its pods will request (what the template says and what admission adds), and the share of
its node that each broker may use, entry i for rank i.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import DEFAULT_DEADLINE_S, MiniCluster, MiniClusterSpec
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.requests import pod_requests
from fluxqueue.api.storedjson import plain
from fluxqueue.minicluster.broker import Share, share_of
from fluxqueue.minicluster.injection import inject
from fluxqueue.minicluster.injection_settings import (
    InjectionSettings,
    InvalidInjection,
    annotated_minicluster,
    identity_of,
    injection_settings_of_pod,
)
from fluxqueue.minicluster.pods import services_pod

__all__ = [
    "PASSED_ON_ANNOTATIONS",
    "FluxPods",
    "annotated",
    "belongs_to",
    "deadline_of",
    "digest_of",
    "flux_pods",
    "is_flux_cluster",
    "job_served_by",
    "minicluster_of_job",
    "owner_uid",
    "queued_job",
    "services_of",
    "shares_for",
    "with_flux",
]

_APPLIED_LIVE = (
    "size",
    "min_size",
    "max_size",
    "cleanup",
    "deadline_seconds",
    "form_timeout_seconds",
    "queue",
    "priority",
    "duration",
)
"""Fields of a spec that its Job is not made from, or that are applied to a Job that exists."""

PASSED_ON_ANNOTATIONS = (
    *names.START_ANNOTATIONS,
    *names.TOPOLOGY_KEYS,
    names.RESERVATION_ANNOTATION,
    names.SUBMITTED_BY_ANNOTATION,
)
"""Annotations of a MiniCluster that its Job gets too."""

Json = dict[str, Any]


def is_flux_cluster(job: Job) -> bool:
    """True if the Job's pods are brokers: it belongs to a MiniCluster, or its template has the annotation."""
    return job.spec.template.metadata.annotation(names.MINICLUSTER_ANNOTATION) == "true"


def annotated(job: Job) -> bool:
    """True if a person made an ordinary Job a Flux cluster, by the annotation."""
    return is_flux_cluster(job) and owner_uid(job) is None


def owner_uid(job: Job) -> str | None:
    """Return the uid of the MiniCluster that a Job belongs to, or None."""
    owner = job.metadata.controller
    return (
        owner.uid
        if owner is not None
        and owner.kind == "MiniCluster"
        and owner.api_version.startswith(names.MINICLUSTER_GROUP)
        else None
    )


def services_of(minicluster: MiniCluster | None, job: Job) -> Pod | None:
    """Return the services pod of a MiniCluster as it is created for its Job; None if it has none.

    Raises
    ------
    InvalidInjection
        ``spec.services`` does not make a valid pod.
    """
    if minicluster is None:
        return None
    made = services_pod(identity_of(minicluster), minicluster.spec, job.metadata.uid)
    try:
        return msgspec.convert(made, Pod) if made is not None else None
    except msgspec.ValidationError as error:
        raise InvalidInjection(
            f"spec.services of its MiniCluster makes no pod: {error}: correct it there"
        ) from None


def job_served_by(pod: Pod) -> str | None:
    """Return the uid of the Job whose brokers a services pod serves; None for any other pod."""
    served = pod.metadata.label(names.SERVICES_OF_LABEL)
    owner = pod.metadata.controller if served else None
    return (
        served
        if owner is not None
        and owner.kind == "MiniCluster"
        and owner.api_version.startswith(names.MINICLUSTER_GROUP)
        else None
    )


def belongs_to(pod: Pod, job: Job) -> bool:
    """True if a pod that names a Job really belongs to it.

    The creator of a pod writes its labels and ownerReferences. The pod must be in the Job's namespace, and a
    services pod must belong to the MiniCluster of the Job.
    """
    if pod.metadata.namespace != job.metadata.namespace:
        return False
    if job_served_by(pod) is None:
        return True
    owner = pod.metadata.controller
    return owner is not None and owner.uid == owner_uid(job)


def digest_of(spec: MiniClusterSpec) -> str:
    """Return a short digest of all that a MiniCluster's objects are made from."""
    kept = dict.fromkeys(_APPLIED_LIVE)
    fields = {
        field.encode_name: getattr(spec, field.name)
        for field in msgspec.structs.fields(spec)
        if field.name not in kept
    }
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:16]


def queued_job(rendered: Json, minicluster: MiniCluster) -> Json:
    """Return the Job of a MiniCluster as the queue takes it in.

    Parameters
    ----------
    rendered
        As `fluxqueue.minicluster.render.objects` makes it.
    minicluster
        The Job carries its queue, priority and duration as labels and annotations, and its annotations about
        the start and the topology.

    Returns
    -------
    dict
        A new Job: suspended by the queue, with its queue, priority, duration and digest. A deadline that
        means "never" is left out, because it would be read as the expected wall time.
    """
    spec, metadata, job = minicluster.spec, dict(rendered["metadata"]), dict(rendered["spec"])
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    annotations |= {
        names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK,
        names.SPEC_DIGEST_ANNOTATION: digest_of(spec),
    }
    labels[names.SEEN_LABEL] = names.SEEN_VALUE
    if spec.queue:
        labels[names.QUEUE_LABEL] = spec.queue
    if spec.priority is not None:
        annotations[names.PRIORITY_ANNOTATION] = str(spec.priority)
    if spec.duration:
        annotations[names.DURATION_ANNOTATION] = spec.duration
    annotations |= {
        key: text
        for key in PASSED_ON_ANNOTATIONS
        if (text := minicluster.metadata.annotation(key)) is not None
    }
    if deadline_of(spec) is None:
        job.pop("activeDeadlineSeconds", None)
    return {
        **rendered,
        "metadata": {**metadata, "labels": labels, "annotations": annotations},
        "spec": {**job, "suspend": True},
    }


def deadline_of(spec: MiniClusterSpec) -> int | None:
    """Return the ``activeDeadlineSeconds`` of its Job;
    None if the spec states none, or the operator's value for "never".
    """
    return None if spec.deadline_seconds in (0, DEFAULT_DEADLINE_S) else spec.deadline_seconds


def minicluster_of_job(job: Job) -> MiniCluster:
    """Return the MiniCluster that an annotated Job describes.

    Raises
    ------
    InvalidInjection
        Its annotations describe no MiniCluster, or it is not an Indexed Job whose pods all run at once.
    """
    meta, spec = job.metadata, job.spec
    if not spec.indexed or spec.completions is None or spec.completions != spec.pods_at_once:
        raise InvalidInjection(
            f"Job {meta.name} cannot be a Flux cluster: set completionMode to Indexed and parallelism to "
            "its completions, "
            "one pod for each broker"
        )
    template = spec.template
    annotations = template.metadata.annotations or {}
    return annotated_minicluster(
        meta.name, meta.namespace, meta.uid, spec.completions, annotations, template.spec.containers[0].name
    )


def with_flux(spec: PodSpec, template: ObjectMeta, namespace: str) -> PodSpec:
    """Return the spec of a pod of this template once admission has put Flux into it.

    Parameters
    ----------
    spec, template
        Of the template, as the API server stores it.
    namespace
        Of the Job.

    Raises
    ------
    InvalidInjection
        Flux is requested, and cannot be put into it.
    """
    marks = _marks(spec, template, namespace)
    if marks is None:
        return spec
    # admission has judged the command; what is read here has none
    sized = msgspec.structs.replace(marks, needs_command=False)
    return msgspec.convert(inject(msgspec.to_builtins(spec, enc_hook=plain), sized), PodSpec)


@dataclass(frozen=True, slots=True)
class FluxPods:
    """The pods of a Job once admission has put Flux into them.

    Attributes
    ----------
    spec
        Of each pod.
    services
        The services pod of its MiniCluster; None if there is none.
    problem
        Why the Job cannot be a Flux cluster; empty if it can, or need not be one.
    """

    spec: PodSpec
    services: Pod | None = None
    problem: str = ""


def flux_pods(job: Job, minicluster: MiniCluster | None) -> FluxPods:
    """Return the pods of a Job as the queue matches them; of a Job that is no Flux cluster, those of its
    template.
    """
    template = job.spec.template
    pods = FluxPods(template.spec)
    try:
        pods = FluxPods(with_flux(template.spec, template.metadata, job.metadata.namespace))
        pods = FluxPods(pods.spec, services_of(minicluster, job))
        if annotated(job):
            minicluster_of_job(job)
    except InvalidInjection as error:
        return replace(pods, problem=str(error))
    return pods


def shares_for(
    spec: PodSpec,
    template: ObjectMeta,
    namespace: str,
    hosts: Sequence[str],
    node_cpus: Callable[[str], Decimal | None],
) -> list[Share]:
    """Return what each broker may use; entry i is rank i.

    Parameters
    ----------
    spec, template, namespace
        Of the Job's template, with the defaults of the namespace.
    hosts
        Node of rank i.
    node_cpus
        Returns the allocatable cpus of a node, by its name; None if unknown.
    """
    marks = _marks(spec, template, namespace)
    runner = next(
        (each for each in spec.containers if marks is None or each.name == marks.runner), spec.containers[0]
    )
    requests = pod_requests(PodSpec(containers=[runner]))
    return [share_of(requests, node_cpus(host)) for host in hosts]


def _marks(spec: PodSpec, template: ObjectMeta, namespace: str) -> InjectionSettings | None:
    meta = msgspec.structs.replace(template, namespace=namespace)
    return injection_settings_of_pod(meta, spec.containers[0].name if spec.containers else "")
