"""Flux put into pods and asked for on Jobs: where `fluxqueue.minicluster.injection` meets the review.

A pod of a Flux cluster says itself what is to be put into it, so nothing is looked up: the pods of a MiniCluster carry it as one
annotation, those of an annotated Job what their template carries and the Job controller adds. The annotation of such a Job is copied into
its template when the Job is created, because that is all its pods will ever know of it; and what would keep every one of its pods from
being a broker is told there, to the person who applied it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.objects import ObjectMeta
from fluxqueue.minicluster.injection import index_of, inject, inject_patch
from fluxqueue.minicluster.marks import InvalidMarks, marks_of_job, marks_of_pod
from fluxqueue.webhook.patches import Operation
from fluxqueue.webhook.reviews import Review, ReviewedJob, ReviewedPod

__all__ = ["asks", "broker_problem", "copied_annotations", "inject_flux"]

_COPIED = (
    names.MINICLUSTER_ANNOTATION,
    names.MINICLUSTER_MODE_ANNOTATION,
    names.MINICLUSTER_TASKS_ANNOTATION,
    names.MINICLUSTER_VIEW_ANNOTATION,
)


class _Spec(msgspec.Struct):
    spec: dict[str, Any]


class _JobSpec(msgspec.Struct):
    template: _Spec


class _Job(msgspec.Struct):
    spec: _JobSpec


_pods = msgspec.json.Decoder(_Spec)
_jobs = msgspec.json.Decoder(_Job)


def inject_flux(review: Review, pod: ReviewedPod) -> list[Operation]:
    """What makes a broker of a pod that asks to be one; nothing for others.

    Raises
    ------
    InvalidMarks
        It asks, and cannot be one.
    """
    meta = pod.metadata
    if not asks(meta):
        return []
    spec = _pods.decode(review.document).spec
    containers = spec.get("containers") or [{}]
    placed = msgspec.structs.replace(meta, namespace=review.namespace)
    marks = marks_of_pod(placed, containers[0].get("name", ""))
    return inject_patch(spec, marks, index_of(meta.annotations)) if marks is not None else []


def asks(meta: ObjectMeta) -> bool:
    """Whether an object says that its pods are brokers."""
    return meta.annotation(names.MINICLUSTER_ANNOTATION) == "true" or meta.annotation(names.INJECTION_ANNOTATION) is not None


def copied_annotations(job: ReviewedJob) -> dict[str, str]:
    """The annotations of a Job that its template lacks and its pods must have to become brokers."""
    own = job.metadata.annotations or {}
    if own.get(names.MINICLUSTER_ANNOTATION) != "true":
        return {}
    template = job.spec.template.metadata
    standing = (template.annotations if template else None) or {}
    return {key: own[key] for key in _COPIED if key in own and key not in standing}


def broker_problem(review: Review, job: ReviewedJob) -> str | None:
    """Why the pods of a Job that a person annotated could not be brokers; None where all is well, or nothing was asked for."""
    template = job.spec.template.metadata
    asked = job.metadata.annotation(names.MINICLUSTER_ANNOTATION) or (template and template.annotation(names.MINICLUSTER_ANNOTATION))
    if asked is None or (template is not None and template.annotation(names.INJECTION_ANNOTATION)):
        return None
    where = f"{review.describe()}: annotation {names.MINICLUSTER_ANNOTATION}"
    if asked != "true":
        return f"{where} is {asked!r}: it is 'true', or left out"
    spec = job.spec
    if spec.completion_mode != "Indexed" or spec.completions is None or spec.completions != spec.parallelism:
        return f"{where} is for Indexed Jobs whose pods run together: set completionMode: Indexed, parallelism the same as completions"
    annotations = {**(job.metadata.annotations or {}), **((template.annotations if template else None) or {})}
    pod = _jobs.decode(review.document).spec.template.spec
    containers = pod.get("containers") or [{}]
    try:
        marks = marks_of_job(job.metadata.name or "job", review.namespace, "", annotations, containers[0].get("name", ""))
        inject(pod, marks)
    except InvalidMarks as error:
        return f"{review.describe()}: {error}"
    return None
