"""What releases one held Job or pod to plain Kubernetes.

All is pure: an object in, one action out. The actions are level-triggered. A Job that has to stop before its
template can change is suspended with the mark of the webhook, and is then like any other held Job, also for
the next run of the command.

What cannot run without fluxqueue is not started. The pods of a MiniCluster get Flux from the webhook when
they are created, so a waiting one keeps its MiniCluster and loses its Job, which a controller of MiniClusters
creates again. A template that names our scheduler cannot change, so no scheduler would bind its pods. Both
are said to the user (`Left`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import affinity_patch_without_pin

__all__ = [
    "Delete",
    "HeldState",
    "JobPatch",
    "Left",
    "PodPatch",
    "Wait",
    "WorkAction",
    "decide_job",
    "decide_pod",
    "held_state",
    "is_held",
]

_BACKOFF_LIMIT = 6
"""``spec.backoffLimit`` of a Job that does not set it."""


@dataclass(frozen=True, slots=True)
class JobPatch:
    """A strategic merge patch of a Job; ``then_again`` if the Job is not released by it alone."""

    body: dict[str, Any]
    then_again: bool = False


@dataclass(frozen=True, slots=True)
class PodPatch:
    """A strategic merge patch of a pod."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """The object is deleted: its owner creates it again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done yet; the pods of the Job are stopping."""


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing can be done; the sentence says why and what helps."""

    sentence: str


WorkAction = JobPatch | PodPatch | Delete | Wait | Left


class HeldState(enum.Enum):
    """Whether fluxqueue holds a Job."""

    FREE = "free"
    SUSPENDED = "suspended"
    GATED = "its pods are gated"
    LATER_GATED = "it runs, and pods that are created later come gated"


def held_state(job: Job, held_pods: Sequence[Pod] = ()) -> HeldState:
    """Return whether a Job is held; ``held_pods`` are its pods that are."""
    if job.finished or job.metadata.deletion_timestamp:
        return HeldState.FREE
    if job.spec.suspend:
        return (
            HeldState.SUSPENDED
            if job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION) == names.SUSPENDED_BY_WEBHOOK
            else HeldState.FREE
        )
    if held_pods:
        return HeldState.GATED
    return HeldState.LATER_GATED if job.spec.template.spec.gated_by(names.GATE) else HeldState.FREE


def is_held(pod: Pod) -> bool:
    """True if nothing would start a pod without fluxqueue: it has our gate, or waits for our scheduler."""
    return pod.active and not pod.spec.node_name and (pod.spec.gated_by(names.GATE) or pod.fluxion_binds)


def decide_job(job: Job, held_pods: Sequence[Pod], *, has_started: bool) -> WorkAction | None:
    """Return what releases a Job.

    Parameters
    ----------
    job
        As read.
    held_pods
        Its pods that are held (`is_held`).
    has_started
        True if one of its pods is bound and has not ended.

    Returns
    -------
    WorkAction or None
        None if nothing of the Job itself changes; `decide_pod` says what happens to its pods.
    """
    state = held_state(job, held_pods)
    if state is HeldState.SUSPENDED:
        return _release_suspended(job)
    if state is HeldState.GATED and not has_started:
        if _owned_by_minicluster(job.metadata):
            return Delete()
        if job.metadata.controller is not None and job.metadata.controller.kind != "CronJob":
            return None  # its owner (a JobSet) would resume it
        return JobPatch(_guarded(job.metadata, _SUSPENSION), then_again=True)
    if job.spec.suspend and not job.finished and not job.metadata.deletion_timestamp:
        return _clean_suspended(job)
    return None


def decide_pod(pod: Pod, job: Job | None = None) -> WorkAction | None:
    """Return what releases a pod; ``job`` is the running Job that controls it, or,
    of a MiniCluster's services pod, that it serves.
    """
    if not is_held(pod):
        return None
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "MiniCluster":
        return Delete() if job is None else _ungated(pod)
    if not pod.fluxion_binds:
        return _ungated(pod)
    where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    if owner is None or pod.metadata.label(names.SEEN_LABEL) is None:
        return Left(
            f"{where} asks for {names.SCHEDULER_NAME}, which cannot be changed: "
            "create it again without spec.schedulerName"
        )
    if job is not None and not _can_lose_a_pod(job):
        return Left(
            f"{where} waits for {names.SCHEDULER_NAME}, and its Job allows no failure: "
            "delete the Job and create it again"
        )
    return Delete()


def _release_suspended(job: Job) -> WorkAction:
    where = f"Job {job.metadata.namespace}/{job.metadata.name}"
    if _owned_by_minicluster(job.metadata):
        return Delete()
    template = job.spec.template
    if "true" in (
        part.annotation(names.MINICLUSTER_ANNOTATION) for part in (job.metadata, template.metadata)
    ):
        return Left(
            f"{where} asks for a Flux cluster, which only fluxqueue forms: "
            "it stays suspended until you delete it"
        )
    if template.spec.scheduler_name == names.SCHEDULER_NAME:
        return Left(
            f"{where} names {names.SCHEDULER_NAME} in its pod template, which cannot be changed: "
            "create it again without it"
        )
    change = _template_change(job)
    if change and not _template_is_mutable(job):
        return Wait()
    gone = {names.SUSPENDED_BY_ANNOTATION: None, **dict.fromkeys(_annotations_of(job.metadata))}
    labels = dict.fromkeys((names.SEEN_LABEL, names.UNSCHEDULABLE_LABEL, *names.ALLOCATION_LABELS))
    spec = {"suspend": False, **({"template": change} if change else {})}
    return JobPatch(
        _guarded(job.metadata, {"metadata": {"annotations": gone, "labels": labels}, "spec": spec})
    )


def _clean_suspended(job: Job) -> WorkAction | None:
    """Remove what the queue left on a Job that its user suspended:
    the gate would hold its pods when the user resumes it.
    """
    change = _template_change(job)
    if not change:
        return None
    if not _template_is_mutable(job):
        return Wait()
    own = {
        "annotations": dict.fromkeys(_annotations_of(job.metadata)),
        "labels": dict.fromkeys(names.ALLOCATION_LABELS),
    }
    return JobPatch(_guarded(job.metadata, {"metadata": own, "spec": {"template": change}}))


_SUSPENSION = {
    "metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}},
    "spec": {"suspend": True},
}


def _template_change(job: Job) -> dict[str, Any]:
    """Return the patch of a template that has something of an allocation; empty if it has nothing."""
    template = job.spec.template
    change: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if keys := _annotations_of(template.metadata, names.SCHEDULER_LABEL):
        metadata["annotations"] = dict.fromkeys(keys)
    if labels := [key for key in names.ALLOCATION_LABELS if template.metadata.label(key) is not None]:
        metadata["labels"] = dict.fromkeys(labels)
    if metadata:
        change["metadata"] = metadata
    gates = (
        {"schedulingGates": [{"name": names.GATE, "$patch": "delete"}]}
        if template.spec.gated_by(names.GATE)
        else {}
    )
    if spec := {**gates, **affinity_patch_without_pin(template)}:
        change["spec"] = spec
    return change


def _template_is_mutable(job: Job) -> bool:
    """True if the API server accepts a change of the template of a suspended Job."""
    return job.status.active == 0 and (job.status.start_time is None or job.status.has_condition("Suspended"))


def _annotations_of(meta: ObjectMeta, *more: str) -> list[str]:
    return [key for key in (*names.ALLOCATION_KEYS, *more) if meta.annotation(key) is not None]


def _ungated(pod: Pod) -> PodPatch:
    gates = [{"name": names.GATE, "$patch": "delete"}]
    labels = dict.fromkeys((names.SEEN_LABEL, names.UNSCHEDULABLE_LABEL))
    return PodPatch(
        _guarded(pod.metadata, {"metadata": {"labels": labels}, "spec": {"schedulingGates": gates}})
    )


def _owned_by_minicluster(meta: ObjectMeta) -> bool:
    owner = meta.controller
    return (
        owner is not None
        and owner.kind == "MiniCluster"
        and owner.api_version.partition("/")[0] == names.MINICLUSTER_GROUP
    )


def _can_lose_a_pod(job: Job) -> bool:
    """True if the Job goes on after the deletion of a pod, which counts as its failure."""
    if job.spec.backoff_limit_per_index is not None:
        return job.spec.backoff_limit_per_index > 0
    limit = _BACKOFF_LIMIT if job.spec.backoff_limit is None else job.spec.backoff_limit
    return job.status.failed < limit


def _guarded(meta: ObjectMeta, patch: dict[str, Any]) -> dict[str, Any]:
    return {
        **patch,
        "metadata": {**patch.get("metadata", {}), "uid": meta.uid, "resourceVersion": meta.resource_version},
    }
