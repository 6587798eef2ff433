"""Between MiniClusters and the queue: what the Job of one looks like to it, and what its brokers are given.

A Flux cluster is queued as the Job it consists of, by the ordinary intake, whether a MiniCluster owns that Job or a person annotated it.
Three things are particular, and all three are pure readings of objects and allocation: what the queue must find on the Job (its queue,
priority and duration, and that it was us who suspended it); what its pods will ask for, which is what the template says *and* what
admission puts into it; and the share of its node that each broker may use, entry i for rank i.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.miniclusters import DEFAULT_DEADLINE_S, MiniCluster, MiniClusterSpec
from fluxqueue.api.objects import Job, ObjectMeta, Pod, PodSpec
from fluxqueue.api.requests import pod_requests
from fluxqueue.minicluster.broker import Share, share_of
from fluxqueue.minicluster.injection import inject
from fluxqueue.minicluster.marks import InvalidMarks, Marks, annotated_minicluster, identity_of, marks_of_pod
from fluxqueue.minicluster.pods import services_pod

__all__ = [
    "DIGEST_ANNOTATION",
    "annotated",
    "deadline_of",
    "digest_of",
    "is_flux_cluster",
    "job_served_by",
    "minicluster_of_job",
    "owner_uid",
    "queued_job",
    "services_of",
    "shares_for",
    "with_flux",
]

DIGEST_ANNOTATION = "fluxqueue/spec-digest"
"""On a MiniCluster's Job: of what it was made from, so that an edit is noticed whoever made it and whenever."""

_APPLIED_LIVE = ("size", "min_size", "max_size", "cleanup", "deadline_seconds", "form_timeout_seconds", "queue", "priority", "duration")
"""Fields of a spec that its Job is not made from, or that are brought to it while it lives."""

Json = dict[str, Any]


def is_flux_cluster(job: Job) -> bool:
    """Whether the Job's pods are brokers: it belongs to a MiniCluster, or its template carries the annotation."""
    return job.spec.template.metadata.annotation(names.MINICLUSTER_ANNOTATION) == "true"


def annotated(job: Job) -> bool:
    """Whether a person made a Flux cluster of an ordinary Job."""
    return is_flux_cluster(job) and owner_uid(job) is None


def owner_uid(job: Job) -> str | None:
    """The uid of the MiniCluster a Job belongs to, or None."""
    owner = job.metadata.controller
    return (
        owner.uid if owner is not None and owner.kind == "MiniCluster" and owner.api_version.startswith(names.MINICLUSTER_GROUP) else None
    )


def services_of(minicluster: MiniCluster | None, job: Job) -> Pod | None:
    """The services pod of a MiniCluster as it is made for its Job; None where there is none.

    Raises
    ------
    InvalidMarks
        What ``spec.services`` says is no pod.
    """
    if minicluster is None:
        return None
    made = services_pod(identity_of(minicluster), minicluster.spec, job.metadata.uid)
    try:
        return msgspec.convert(made, Pod) if made is not None else None
    except msgspec.ValidationError as error:
        raise InvalidMarks(f"spec.services of its MiniCluster makes no pod: {error}: correct it there") from None


def job_served_by(pod: Pod) -> str | None:
    """The uid of the Job beside whose pods a services pod has its place; None for any other pod."""
    served = pod.metadata.label(names.SERVICES_OF_LABEL)
    owner = pod.metadata.controller if served else None
    return served if owner is not None and owner.kind == "MiniCluster" and owner.api_version.startswith(names.MINICLUSTER_GROUP) else None


def digest_of(spec: MiniClusterSpec) -> str:
    """Short digest of all that a MiniCluster's objects are made from."""
    kept = dict.fromkeys(_APPLIED_LIVE)
    plain = {field.encode_name: getattr(spec, field.name) for field in msgspec.structs.fields(spec) if field.name not in kept}
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


def queued_job(rendered: Json, spec: MiniClusterSpec) -> Json:
    """The Job of a MiniCluster as the queue takes it in.

    Parameters
    ----------
    rendered
        As `fluxqueue.minicluster.render.objects` makes it.
    spec
        For the wishes that a Job carries as labels and annotations.

    Returns
    -------
    dict
        A new Job: suspended by us, with its queue, priority, duration and digest. A deadline that means for ever is left out: it would be
        taken for the time the work needs.
    """
    metadata, job = dict(rendered["metadata"]), dict(rendered["spec"])
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    annotations |= {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK, DIGEST_ANNOTATION: digest_of(spec)}
    labels[names.SEEN_LABEL] = names.SEEN_VALUE
    if spec.queue:
        labels[names.QUEUE_LABEL] = spec.queue
    if spec.priority is not None:
        annotations[names.PRIORITY_ANNOTATION] = str(spec.priority)
    if spec.duration:
        annotations[names.DURATION_ANNOTATION] = spec.duration
    if deadline_of(spec) is None:
        job.pop("activeDeadlineSeconds", None)
    return {**rendered, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": {**job, "suspend": True}}


def deadline_of(spec: MiniClusterSpec) -> int | None:
    """The ``activeDeadlineSeconds`` of its Job; None where the spec says none, or the operator's for ever."""
    return None if spec.deadline_seconds in (0, DEFAULT_DEADLINE_S) else spec.deadline_seconds


def minicluster_of_job(job: Job) -> MiniCluster:
    """An annotated Job as the MiniCluster it stands for.

    Raises
    ------
    InvalidMarks
        Its annotations do not make one, or it is not an Indexed Job whose pods all run at once.
    """
    meta, spec = job.metadata, job.spec
    if not spec.indexed or spec.completions is None or spec.completions != spec.pods_at_once:
        raise InvalidMarks(
            f"Job {meta.name} cannot be a Flux cluster: set completionMode to Indexed and parallelism to its completions, "
            "one pod for each broker"
        )
    template = spec.template
    annotations = template.metadata.annotations or {}
    return annotated_minicluster(meta.name, meta.namespace, meta.uid, spec.completions, annotations, template.spec.containers[0].name)


def with_flux(spec: PodSpec, template: ObjectMeta, namespace: str) -> PodSpec:
    """What a pod of this template asks for once admission has put Flux into it.

    Parameters
    ----------
    spec, template
        Of the template, as the API server has it.
    namespace
        Of the Job.

    Raises
    ------
    InvalidMarks
        Flux was asked for and cannot be had.
    """
    marks = _marks(spec, template, namespace)
    if marks is None:
        return spec
    sized = msgspec.structs.replace(marks, needs_command=False)  # admission has judged the command; what is read here has none
    return msgspec.convert(inject(msgspec.to_builtins(spec), sized), PodSpec)


def shares_for(
    spec: PodSpec, template: ObjectMeta, namespace: str, hosts: Sequence[str], node_cpus: Callable[[str], Decimal | None]
) -> list[Share]:
    """What each broker may use; entry i is rank i.

    Parameters
    ----------
    spec, template, namespace
        Of the Job's template, defaults of the namespace already in it.
    hosts
        Node of rank i.
    node_cpus
        Allocatable cpus of a node, by name.
    """
    marks = _marks(spec, template, namespace)
    runner = next((each for each in spec.containers if marks is None or each.name == marks.runner), spec.containers[0])
    requests = pod_requests(PodSpec(containers=[runner]))
    return [share_of(requests, node_cpus(host)) for host in hosts]


def _marks(spec: PodSpec, template: ObjectMeta, namespace: str) -> Marks | None:
    meta = msgspec.structs.replace(template, namespace=namespace)
    return marks_of_pod(meta, spec.containers[0].name if spec.containers else "")
