"""The patches that let work go onto its nodes, and the one that takes it back.

All pure: an object and an allocation in, one patch out. Each carries the uid and resourceVersion it was made from, so the API server
refuses it (409) when anything about the object changed since it was read, and each says only what is ours, so fields that are newer than
this code survive. Applying one twice changes nothing.

A pin release also puts our gate into the template. The webhook takes it off each pod it pins; a pod that came around the webhook stays
gated and is ungated onto its slot instead of running anywhere (architecture, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluxqueue.api import hostlists, names
from fluxqueue.api.objects import Job, ObjectMeta, Pod
from fluxqueue.queue.records import FluxionJobId

__all__ = ["clear_job", "clear_start_time", "gate_release_job", "hand_back_job", "pin_release_job", "release_pod", "suspend_job"]

Patch = dict[str, Any]


def pin_release_job(job: Job, jobid: FluxionJobId, hosts: Sequence[str]) -> Patch:
    """Resume a suspended Job with the node of every index in its template (strategic merge patch).

    Parameters
    ----------
    job
        The suspended Job, as read.
    jobid
        The allocation's id.
    hosts
        Node of rank i. A Job of one pod at a time has one, whatever its number of indexes.
    """
    listed = list(hosts)
    if len(listed) == 1 and job.spec.indexed:
        listed *= job.spec.completions or 1
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
                        "labels": {names.JOBID_LABEL: str(jobid)},
                        "annotations": {names.ALLOCATION_ANNOTATION: str(jobid), names.NODES_ANNOTATION: hostlists.encode(listed)},
                    },
                    "spec": {"schedulingGates": [{"name": names.GATE}]},
                },
            },
        },
    )


def gate_release_job(job: Job, jobid: FluxionJobId) -> Patch:
    """Resume a suspended Job whose pods come gated and are let go one by one (strategic merge patch)."""
    return _guarded(
        job.metadata,
        {
            "metadata": {
                "labels": {names.JOBID_LABEL: str(jobid)},
                "annotations": {names.SUSPENDED_BY_ANNOTATION: None},
            },
            "spec": {"suspend": False, "template": {"spec": {"schedulingGates": [{"name": names.GATE}]}}},
        },
    )


def suspend_job(job: Job) -> Patch:
    """Take a Job back; its template can be changed only once it has stopped, so that is a patch of its own."""
    return _guarded(
        job.metadata,
        {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}}, "spec": {"suspend": True}},
    )


def hand_back_job(job: Job) -> Patch:
    """Stop a Job for good and leave it to its user: suspended, and not by us."""
    return _guarded(job.metadata, {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: None}}, "spec": {"suspend": True}})


def clear_job(job: Job) -> Patch | None:
    """Remove every trace of an allocation from a stopped Job (strategic merge patch), or None where there is none.

    A stale allocation is a free pass: whoever resumed the Job would get pods that are not gated. So this comes before anything is freed.
    """
    template = job.spec.template.metadata
    if not any(
        part.label(key) is not None or part.annotation(key) is not None
        for part in (job.metadata, template)
        for key in names.ALLOCATION_KEYS
    ):
        return None
    gone = {
        "labels": {names.JOBID_LABEL: None},
        "annotations": {names.ALLOCATION_ANNOTATION: None, names.NODES_ANNOTATION: None},
    }
    return _guarded(job.metadata, {"metadata": gone, "spec": {"template": {"metadata": gone}}})


def clear_start_time(job: Job) -> Patch:
    """Let a stopped Job's template be changed on Kubernetes before 1.36 (merge patch of the status)."""
    return _guarded(job.metadata, {"status": {"startTime": None}})


def release_pod(pod: Pod, jobid: FluxionJobId, node: str) -> Patch:
    """Take our gate off a pod and tie it to its node (strategic merge patch).

    Where the pod has required node affinity of its own, the pin goes into each of its terms: terms are alternatives, and the list is
    replaced as a whole, so it is sent complete.
    """
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = (((pod.spec.affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")) or {}
    terms = [_pinned(term, pin) for term in required.get("nodeSelectorTerms") or ()] or [{"matchFields": [pin]}]
    return _guarded(
        pod.metadata,
        {
            "metadata": {
                "labels": {names.JOBID_LABEL: str(jobid)},
                "annotations": {names.ALLOCATION_ANNOTATION: str(jobid), names.NODES_ANNOTATION: hostlists.encode([node])},
            },
            "spec": {
                "schedulingGates": [{"name": names.GATE, "$patch": "delete"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
            },
        },
    )


def _pinned(term: Mapping[str, Any], pin: Mapping[str, Any]) -> dict[str, Any]:
    others = [field for field in term.get("matchFields") or () if field != pin]
    return {**term, "matchFields": [*others, pin]}


def _guarded(meta: ObjectMeta, patch: Patch) -> Patch:
    patch["metadata"] = {**patch.get("metadata", {}), "uid": meta.uid, "resourceVersion": meta.resource_version}
    return patch
