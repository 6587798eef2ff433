"""The objects of the simulated cluster: nodes, Jobs as the webhook leaves them, and their pods,
admitted by the webhook's own code.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import msgspec
from support.builders import make_job, make_node, make_review
from support.json_patches import apply_patch

from fluxqueue.api import names
from fluxqueue.webhook.decide import AdmissionSettings, decide
from fluxqueue.webhook.reviews import read_review

__all__ = ["NAMESPACE", "Json", "admitted", "node", "pending_job", "pod_of", "running_job", "succeeded"]

Json = dict[str, Any]

NAMESPACE = "science"
PENDING_CORES = (16, 32, 48, 64)
PENDING_PODS = (1, 2, 4, 8, 16, 32, 64, 128)
PENDING_MINUTES = (10, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2160, 2880)
RUNNING_CORES = 15
"""Four running Jobs leave four cores of a node free, which is less than any pending pod needs."""
_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
_SETTINGS = AdmissionSettings()


def node(number: int) -> Json:
    """Return a node of 64 cores."""
    return make_node(f"node-{number:05}", cpu="64", memory="512Gi").build()


def running_job(number: int, chance: random.Random) -> Json:
    """Return a Job of one pod that ends within a day."""
    duration = f"{chance.randrange(60, 24 * 60)}m"
    return _job(make_job(f"run-{number:06}"), RUNNING_CORES, duration)


def pending_job(number: int, chance: random.Random) -> Json:
    """Return a Job that fits no node while the running Jobs are there."""
    duration = f"{chance.choice(PENDING_MINUTES)}m"
    return _job(
        make_job(f"wait-{number:06}").indexed(chance.choice(PENDING_PODS)),
        chance.choice(PENDING_CORES),
        duration,
    )


def _job(builder: Any, cores: int, duration: str) -> Json:
    builder = builder.namespace(NAMESPACE).cpu(str(cores)).memory(f"{2 * cores}Gi").suspended()
    builder = builder.annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
    built: Json = builder.annotation(names.DURATION_ANNOTATION, duration).build()
    return built


def pod_of(job: Json, index: int) -> Json:
    """Return a pod as the Job controller sends it."""
    template, meta = job["spec"]["template"], job["metadata"]
    indexed = job["spec"]["completionMode"] == "Indexed"
    labels = {
        "job-name": meta["name"],
        "batch.kubernetes.io/job-name": meta["name"],
        "batch.kubernetes.io/controller-uid": meta["uid"],
    }
    annotations = {names.COMPLETION_INDEX_ANNOTATION: str(index)} if indexed else {}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    given = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-{index}",
            "namespace": meta["namespace"],
            "labels": {
                **(given.get("labels") or {}),
                **labels,
                **({names.COMPLETION_INDEX_ANNOTATION: str(index)} if indexed else {}),
            },
            "annotations": {**(given.get("annotations") or {}), **annotations},
            "ownerReferences": [owner],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }


def admitted(pod: Json) -> tuple[Json, str]:
    """Return a pod after the webhook's decision, and the node that it gave; the node is empty if it gates the
    pod.

    Raises
    ------
    ValueError
        The webhook refuses the pod.
    """
    decision = decide(
        read_review(make_review(pod, user=_CONTROLLER).body()), _SETTINGS, dt.datetime.now(dt.UTC)
    )
    if decision.refusal is not None:
        raise ValueError(decision.refusal.message)
    after: Json = apply_patch(pod, msgspec.json.decode(msgspec.json.encode(decision.operations)))
    if after["spec"].get("schedulingGates"):
        return after, ""
    return after, after["metadata"]["annotations"].get(names.NODES_ANNOTATION, "")


def succeeded(status: Json) -> Json:
    """Return the status of a pod that ended well."""
    return {**status, "phase": "Succeeded"}


def pods_of(job: Json) -> Iterator[Json]:
    """Yield all pods of a Job."""
    for index in range(job["spec"]["completions"]):
        yield pod_of(job, index)
