"""Flux in pods and on annotated Jobs: applies `fluxqueue.minicluster.injection` to reviews.

A pod of a Flux cluster describes itself what has to be added to it, so nothing is looked up. The pods of a
MiniCluster carry it as one annotation. The pods of an annotated Job carry the annotations of their template
and what the Job controller adds. The annotation of such a Job is copied into its template when the Job is
created, because its pods see nothing else of the Job. A problem that would prevent all of its pods from being
brokers is reported at that time, to the person who applies the Job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.minicluster.bounds import MOST_BROKERS
from fluxqueue.minicluster.injection import index_of, inject, inject_patch
from fluxqueue.minicluster.injection_settings import (
    InvalidInjection,
    injection_settings_of_job,
    injection_settings_of_pod,
)
from fluxqueue.webhook.patches import Operation
from fluxqueue.webhook.reviews import Review, ReviewedJob, ReviewedPod

__all__ = ["broker_problem", "copied_annotations", "inject_flux", "requests_broker"]

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
    """Return the operations that make a broker of a pod that requests it; none for other pods.

    Raises
    ------
    InvalidInjection
        The pod requests it and cannot be a broker.
    """
    meta = pod.metadata
    if not requests_broker(meta):
        return []
    spec = _pods.decode(review.document).spec
    containers = spec.get("containers") or [{}]
    named = msgspec.structs.replace(meta, namespace=review.namespace)
    settings = injection_settings_of_pod(named, containers[0].get("name", ""))
    return inject_patch(spec, settings, index_of(meta.annotations)) if settings is not None else []


def requests_broker(meta: ObjectMeta) -> bool:
    """Return True if an object requests that its pods are brokers."""
    return (
        meta.annotation(names.MINICLUSTER_ANNOTATION) == "true"
        or meta.annotation(names.INJECTION_ANNOTATION) is not None
    )


def copied_annotations(job: ReviewedJob) -> dict[str, str]:
    """Return the annotations of a Job that its pods need to become brokers and its template lacks."""
    own = job.metadata.annotations or {}
    if own.get(names.MINICLUSTER_ANNOTATION) != "true":
        return {}
    template = job.spec.template.metadata
    present = (template.annotations if template else None) or {}
    return {key: own[key] for key in _COPIED if key in own and key not in present}


def broker_problem(review: Review, job: ReviewedJob) -> str | None:
    """Return why the pods of an annotated Job could not be brokers;
    None if they can, or if nothing was requested.
    """
    template = job.spec.template.metadata
    value = job.metadata.annotation(names.MINICLUSTER_ANNOTATION) or (
        template and template.annotation(names.MINICLUSTER_ANNOTATION)
    )
    if value is None or (template is not None and template.annotation(names.INJECTION_ANNOTATION)):
        return None
    where = f"{review.describe()}: annotation {names.MINICLUSTER_ANNOTATION}"
    if value != "true":
        return f"{where} is {value!r}: it is 'true', or left out"
    spec = job.spec
    if (spec.completions or 0) > MOST_BROKERS:
        return f"{where} is for at most {MOST_BROKERS} brokers: make spec.completions smaller"
    if spec.completion_mode != "Indexed" or spec.completions is None or spec.completions != spec.parallelism:
        return (
            f"{where} is for Indexed Jobs whose pods run together: set completionMode: Indexed, "
            "parallelism the same as completions"
        )
    annotations = {**(job.metadata.annotations or {}), **((template.annotations if template else None) or {})}
    pod = _jobs.decode(review.document).spec.template.spec
    containers = pod.get("containers") or [{}]
    try:
        settings = injection_settings_of_job(
            job.metadata.name or "job", review.namespace, "", annotations, containers[0].get("name", "")
        )
        inject(pod, settings)
    except InvalidInjection as error:
        return f"{review.describe()}: {error}"
    return None
