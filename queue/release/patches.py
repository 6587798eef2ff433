"""The patches that release objects onto their nodes, and those that take an allocation from them again.

All are pure: an object and an allocation in, one patch out. Each carries the uid and the resourceVersion it
was made from, so the API server refuses it (409) if anything about the object changed since. Each contains
only our own fields, so fields that are newer than this code survive. Applying a patch twice changes nothing.

A pin release also writes our gate into the template. The webhook removes it from each pod it pins. A pod that
bypassed the webhook stays gated, and is released onto its slot by the tracker instead of running anywhere
(architecture, section 5).

If all pods of a Job come to one slot, one after the other, the template itself holds the node
(`fluxqueue.api.templatepins`), and the webhook is not asked about the pods.

A released template names the scheduler of its pods. Pods of our scheduler get no node affinity: their node is
an annotation, which can change. If an allocation has several slots, an annotation has the number of pods that
are bound together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pinwindows import format_pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import affinity_patch_without_pin, node_affinity
from fluxqueue.queue.model.jobs import started_with_fewer
from fluxqueue.queue.model.records import FluxionJobId

__all__ = [
    "LONGEST_LIST_BYTES",
    "clear_job",
    "clear_start_time",
    "end_job_after",
    "gate_release_job",
    "hold_node_release_job",
    "label_job",
    "pin_release_job",
    "release_pod",
    "resize_job",
    "suspend_for_user",
    "suspend_job",
    "tell_preemption",
    "uncount_pod",
    "withdraw_pod",
]

Patch = dict[str, Any]

LONGEST_LIST_BYTES = 200 * 1024
"""For the node list in a template: all annotations of one object together may have 256 KiB."""

_UNGATED: Final[Patch] = {"name": names.GATE, "$patch": "delete"}


def pin_release_job(
    job: Job,
    jobid: FluxionJobId,
    hosts: Sequence[str],
    pin_until: datetime,
    scheduler: SchedulerName = SchedulerName.STOCK,
    gang_size: int = 1,
    *,
    parallelism: int | None = None,
) -> Patch:
    """Resume a suspended Job with the node of every index in its template (strategic merge patch).

    If the list of nodes is too long for an annotation, the Job is released by gate: its pods are released
    onto their slots one by one.

    Parameters
    ----------
    job
        The suspended Job, as read.
    jobid
        The allocation's id.
    hosts
        Entry i is the node of rank i. A Job that runs one pod at a time has one entry for all its indexes.
    pin_until
        When its pin window closes.
    scheduler
        Binds its pods.
    gang_size
        The number of pods that are bound together.
    parallelism
        That of a Job that was started with fewer pods before; None leaves it as it is.
    """
    listed = list(hosts)
    if len(listed) == 1 and job.spec.indexed:
        listed *= job.spec.completions or 1
    nodes = hostlists.encode(listed)
    if len(nodes) > LONGEST_LIST_BYTES:
        return gate_release_job(job, jobid, scheduler, parallelism=parallelism)
    pinned = {
        names.ALLOCATION_ANNOTATION: str(jobid),
        names.NODES_ANNOTATION: nodes,
        names.PIN_UNTIL_ANNOTATION: format_pin_until(pin_until),
        names.SCHEDULER_LABEL: scheduler.value,
        **_gang(gang_size),
    }
    template = {
        "metadata": {"labels": {names.JOBID_LABEL: str(jobid)}, "annotations": pinned},
        "spec": {"schedulingGates": [{"name": names.GATE}]},
    }
    return _guarded(
        job.metadata,
        {
            "metadata": {
                "labels": {names.JOBID_LABEL: str(jobid)},
                "annotations": {names.SUSPENDED_BY_ANNOTATION: None, **_started_with(job, parallelism)},
            },
            "spec": {**_sized(parallelism), "suspend": False, "template": template},
        },
    )


def hold_node_release_job(
    job: Job, jobid: FluxionJobId, node: str, scheduler: SchedulerName = SchedulerName.STOCK
) -> Patch:
    """Resume a suspended Job whose template holds the one node of its pods (strategic merge patch).

    The pods need neither the webhook nor a gate. It is for Jobs with
    `fluxqueue.queue.model.jobs.template_can_hold_node`. A gate that an earlier release has left in the
    template is removed.
    """
    pinned = {} if scheduler is SchedulerName.FLUXION else {"affinity": node_affinity(node)}
    gates = {"schedulingGates": [_UNGATED]} if job.spec.template.spec.gated_by(names.GATE) else {}
    return _guarded(
        job.metadata,
        {
            "metadata": {
                "labels": {names.JOBID_LABEL: str(jobid)},
                "annotations": {names.SUSPENDED_BY_ANNOTATION: None},
            },
            "spec": {
                "suspend": False,
                "template": {
                    "metadata": {
                        "labels": {names.JOBID_LABEL: str(jobid), names.PINNED_LABEL: names.PINNED_VALUE},
                        "annotations": {
                            names.ALLOCATION_ANNOTATION: str(jobid),
                            names.NODES_ANNOTATION: hostlists.encode([node]),
                            names.SCHEDULER_LABEL: scheduler.value,
                        },
                    },
                    "spec": {**pinned, **gates},
                },
            },
        },
    )


def gate_release_job(
    job: Job,
    jobid: FluxionJobId,
    scheduler: SchedulerName = SchedulerName.STOCK,
    *,
    parallelism: int | None = None,
) -> Patch:
    """Resume a suspended Job whose pods are created gated and released one by one (strategic merge patch).

    ``parallelism`` is that of a Job that starts with fewer pods than it asked for; None leaves it as it is.
    """
    return _guarded(
        job.metadata,
        {
            "metadata": {
                "labels": {names.JOBID_LABEL: str(jobid)},
                "annotations": {names.SUSPENDED_BY_ANNOTATION: None, **_started_with(job, parallelism)},
            },
            "spec": {
                **_sized(parallelism),
                "suspend": False,
                "template": {
                    "metadata": {"annotations": {names.SCHEDULER_LABEL: scheduler.value}},
                    "spec": {"schedulingGates": [{"name": names.GATE}]},
                },
            },
        },
    )


def _sized(parallelism: int | None) -> Patch:
    return {} if parallelism is None else {"parallelism": parallelism}


def _started_with(job: Job, parallelism: int | None) -> Patch:
    """Note on a Job with how many pods it starts if these are fewer than it asks for,
    and take back an earlier note.
    """
    if parallelism is None:
        return {}
    fewer = parallelism < (job.spec.completions or 0)
    return {names.STARTED_PODS_ANNOTATION: str(parallelism) if fewer else None}


def resize_job(job: Job, parallelism: int) -> Patch:
    """Change how many pods of a running Job run at once;
    note on the Job that this is not what its user wrote.
    """
    spec = {"parallelism": parallelism}
    if started_with_fewer(job):
        return _guarded(job.metadata, {"spec": spec})
    return _guarded(
        job.metadata, {"metadata": {"annotations": _started_with(job, parallelism)}, "spec": spec}
    )


def label_job(job: Job, jobid: FluxionJobId, *, parallelism: int | None = None) -> Patch:
    """Write the allocation's id on a Job that its user resumed: its template cannot change, and its pods are
    released one by one.

    ``parallelism`` is that of a Job that starts with as many pods as have a node; None leaves it as it is.
    """
    marks: Patch = {"labels": {names.JOBID_LABEL: str(jobid)}}
    if parallelism is None:
        return _guarded(job.metadata, {"metadata": marks})
    return _guarded(
        job.metadata,
        {"metadata": {**marks, "annotations": _started_with(job, parallelism)}, "spec": _sized(parallelism)},
    )


def suspend_job(job: Job) -> Patch:
    """Suspend a Job for an eviction.
    Its template can be changed only once it has stopped, so `clear_job` is another patch.
    """
    return _guarded(
        job.metadata,
        {
            "metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}},
            "spec": {"suspend": True},
        },
    )


def suspend_for_user(job: Job) -> Patch:
    """Suspend a Job so that only its user resumes it: without the mark of our suspension."""
    return _guarded(
        job.metadata,
        {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: None}}, "spec": {"suspend": True}},
    )


def uncount_pod(pod: Pod) -> Patch:
    """Take the Job controller's finalizer from a pod, as that does with pods that it ends itself:
    the pod does not count as failed.
    """
    left = [each for each in pod.metadata.finalizers or () if each != names.JOB_TRACKING_FINALIZER]
    return _guarded(pod.metadata, {"metadata": {"finalizers": left}})


def tell_preemption(pod: Pod, at: str) -> Patch:
    """Tell a running pod when it is preempted; with an empty time, that it is not."""
    return {"metadata": {"uid": pod.metadata.uid, "annotations": {names.PREEMPT_AT_ANNOTATION: at or None}}}


def end_job_after(job: Job, seconds: int) -> Patch:
    """Have the Job controller end a Job that has run for so many seconds:
    it deletes the pods, and the Job fails (DeadlineExceeded).
    """
    return _guarded(job.metadata, {"spec": {"activeDeadlineSeconds": seconds}})


def clear_job(job: Job) -> Patch | None:
    """Remove an allocation from a stopped Job (strategic merge patch); None if the Job has nothing of one.

    The webhook would honour a stale allocation: after a resume the pods would not be gated. So this comes
    before anything is freed.
    """
    template = job.spec.template.metadata
    if not any(
        part.label(key) is not None or part.annotation(key) is not None
        for part in (job.metadata, template)
        for key in names.ALLOCATION_KEYS
    ):
        return None
    gone: dict[str, Patch] = {
        "labels": dict.fromkeys(names.ALLOCATION_LABELS),
        "annotations": dict.fromkeys(names.ALLOCATION_ANNOTATIONS),
    }
    decided: Patch = {
        "metadata": {**gone, "annotations": {**gone["annotations"], names.SCHEDULER_LABEL: None}}
    }
    if unpinned := affinity_patch_without_pin(job.spec.template):
        decided["spec"] = unpinned
    return _guarded(job.metadata, {"metadata": gone, "spec": {"template": decided}})


def clear_start_time(job: Job) -> Patch:
    """Make the template of a stopped Job mutable on Kubernetes before 1.36 (merge patch of the status)."""
    return _guarded(job.metadata, {"status": {"startTime": None}})


def release_pod(pod: Pod, jobid: FluxionJobId, node: str, gang_size: int = 1) -> Patch:
    """Remove our gate from a pod and tie the pod to its node (strategic merge patch).

    A pod of our scheduler gets its node by annotation alone, and may have no gate any more (`withdraw_pod`).
    If another pod has required node affinity of its own, the pin goes into each of its terms: terms are
    alternatives. The list is replaced as a whole, so it is sent complete.

    Parameters
    ----------
    pod
        The held pod, as read.
    jobid, node
        The allocation's id, and the node of the pod's slot.
    gang_size
        The number of pods of the allocation that are bound together; 1 if each is bound by itself.
    """
    ours = pod.spec.scheduler_name == names.SCHEDULER_NAME
    annotations = {
        names.ALLOCATION_ANNOTATION: str(jobid),
        names.NODES_ANNOTATION: hostlists.encode([node]),
        **_gang(gang_size),
    }
    spec: Patch = {"schedulingGates": [_UNGATED]} if pod.spec.gated_by(names.GATE) else {}
    if not ours:
        spec["affinity"] = _tied(pod, node)
    labels = {names.JOBID_LABEL: str(jobid)}
    return _guarded(pod.metadata, {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})


def _gang(size: int) -> dict[str, str]:
    """Return the annotation that our scheduler reads, and the extender of the stock scheduler,
    if one is installed.
    """
    return {names.GANG_SIZE_ANNOTATION: str(size)} if size > 1 else {}


def _tied(pod: Pod, node: str) -> Patch:
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = (
        ((pod.spec.affinity or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
    ) or {}
    terms = [_pinned(term, pin) for term in required.get("nodeSelectorTerms") or ()] or [
        {"matchFields": [pin]}
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def withdraw_pod(pod: Pod) -> Patch:
    """Remove the allocation from a released pod of our own scheduler, so that the pod waits again (strategic
    merge patch).

    The patch carries the resourceVersion of the pod, and so does the scheduler's bind: only one of them can
    succeed.
    """
    labels: dict[str, None] = dict.fromkeys(names.ALLOCATION_LABELS)
    annotations: dict[str, None] = dict.fromkeys(names.ALLOCATION_ANNOTATIONS)
    return _guarded(pod.metadata, {"metadata": {"labels": labels, "annotations": annotations}})


def _pinned(term: Mapping[str, Any], pin: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the pin to a term.
    An empty one matches nothing and stays so: the API server refuses any change of it.
    """
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    others = [field for field in term.get("matchFields") or () if field != pin]
    return {**term, "matchFields": [*others, pin]}


def _guarded(meta: ObjectMeta, patch: Patch) -> Patch:
    patch["metadata"] = {
        **patch.get("metadata", {}),
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return patch
