"""Work that runs before the work of a random world, each on a node that it names, so that it lies in all
copies alike: it is resized in place, or it may be preempted for the work.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.requests import pod_usage

__all__ = ["EARLIER", "EARLIER_NAME", "EARLIER_SHARED", "PREEMPTS", "QUEUE", "RESIZED", "earlier_work"]

Json = dict[str, Any]
EARLIER = "differential/earlier"
"""Label of this work, and of its pods."""
PREEMPTS = "differential/preempts"
"""Annotation of work for which the work of its world may preempt it."""
RESIZED = "differential/resized"
"""Annotation of pods: the cores that they request once they run."""
QUEUE = "differential"
EARLIER_NAME = "earlier-"
"""Names of this work begin so."""
_HOST = "kubernetes.io/hostname"
_LEAST = 100
"""Thousandths of free cores of a node, below which it gets no such work."""
_RUN_SECONDS = "fluxqueue.local/run-seconds"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_QUEUES, _VERSION = f"/apis/{names.API_VERSION}/fluxqueues", names.API_VERSION
EARLIER_SHARED: tuple[tuple[str, Json], ...] = (
    (_CLASSES, {"metadata": {"name": "urgent"}, "value": 100}),
    (_CLASSES, {"metadata": {"name": "spared"}, "value": 100_000}),
    (
        _QUEUES,
        {
            "apiVersion": _VERSION,
            "kind": "FluxQueue",
            "metadata": {"name": QUEUE},
            "spec": {"preemption": "lowerPriority"},
        },
    ),
)
"""Path and object of what this work needs."""


def earlier_work(
    rng: random.Random, namespace: str, documents: Sequence[Json], templates: Sequence[Json]
) -> Iterator[Json]:
    """Yield work that takes a part of the free cores of nodes.

    Parameters
    ----------
    rng
        Makes all choices.
    namespace
        Of this work.
    documents
        The world without it. If the work may preempt, pods that are not the queue's get a class that nobody
        preempts, since the queue does not preempt them.
    templates
        Of the pods of the work. They get the size of a part of a node; if it may preempt, its priority too.
    """
    preempts = rng.random() < 0.7
    nodes = [each for each in documents if each["kind"] == "Node"]
    _resize_work(rng, nodes, templates)
    if preempts:
        _make_urgent(documents, templates)
    free = {each["metadata"]["name"]: _free_cores(each, documents) for each in nodes}
    for number in range(rng.choice((1, 2, 2, 3))):
        node = rng.choice(nodes)
        name = node["metadata"]["name"]
        kind, pods = rng.choice((("Job", 1), ("Job", 2), ("Pod", 1), ("Deployment", 1), ("Deployment", 2)))
        share, later = rng.choice((3, 6, 9)), rng.choice((-0.5, 0.5))
        urgent = preempts and rng.random() < 0.2
        labels = {"app": rng.choice("abc"), **({"tier": rng.choice("xy")} if rng.random() < 0.5 else {})}
        if node["spec"].get("unschedulable") or free[name] < _LEAST:
            continue
        cores = free[name] * share // (10 * pods)
        free[name] -= cores * pods
        pod = _pod(node, cores, labels)
        if preempts:
            pod["metadata"]["annotations"][PREEMPTS] = "true"
            pod["metadata"]["labels"][names.QUEUE_LABEL] = QUEUE
        else:
            more = int((free[name] // pods if later > 0 else cores) * later)
            free[name] -= max(more, 0) * pods
            pod["metadata"]["annotations"][RESIZED] = f"{cores + more}m"
        if urgent:
            pod["spec"]["priorityClassName"] = "urgent"
        yield _owner(kind, f"{EARLIER_NAME}{number}", namespace, pod, pods)


def _resize_work(rng: random.Random, nodes: Sequence[Json], templates: Sequence[Json]) -> None:
    """Have each pod of the work request a part of a node."""
    node, share = rng.choice(nodes), rng.choice((3, 6, 9))
    cores = int(parse_quantity(node["status"]["allocatable"]["cpu"]) * 100) * share
    for each in templates:
        each["spec"].pop("resources", None)
        resources = each["spec"]["containers"][0]["resources"]
        resources["requests"]["cpu"] = f"{cores}m"
        resources.get("limits", {}).pop("cpu", None)


def _make_urgent(documents: Sequence[Json], templates: Sequence[Json]) -> None:
    for each in templates:
        each["metadata"].setdefault("labels", {})[names.QUEUE_LABEL] = QUEUE
        each["spec"]["priorityClassName"] = "urgent"
    for each in documents:
        if each["kind"] == "Pod" and "nodeName" in each["spec"]:
            each["spec"]["priorityClassName"] = "spared"
        elif each["kind"] == "JobSet" or "template" in each.get("spec", {}):
            each["metadata"].setdefault("labels", {})[names.QUEUE_LABEL] = QUEUE


def _free_cores(node: Json, documents: Sequence[Json]) -> int:
    """Return the free cores of a node, in thousandths."""
    used = [
        pod_usage(msgspec.convert(each, Pod)).get("cpu", 0)
        for each in documents
        if each["kind"] == "Pod" and each["spec"].get("nodeName") == node["metadata"]["name"]
    ]
    return int(1000 * (parse_quantity(node["status"]["allocatable"]["cpu"]) - sum(used)))


def _pod(node: Json, cores: int, labels: dict[str, str]) -> Json:
    return {
        "metadata": {"labels": {EARLIER: "true", **labels}, "annotations": {_RUN_SECONDS: "forever"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{cores}m"}}}],
            "nodeSelector": {key: node["metadata"]["labels"][key] for key in ("case", _HOST)},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
        },
    }


def _owner(kind: str, name: str, namespace: str, pod: Json, pods: int) -> Json:
    annotations = {key: text for key, text in pod["metadata"]["annotations"].items() if key == PREEMPTS}
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": pod["metadata"]["labels"],
        "annotations": annotations,
    }
    if kind == "Pod":
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta | {"annotations": pod["metadata"]["annotations"]},
            "spec": pod["spec"],
        }
    if kind == "Job":
        spec = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {**pod, "spec": pod["spec"] | {"restartPolicy": "Never"}},
        }
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "earlier": name}
    spec = {"replicas": pods, "selector": {"matchLabels": {"earlier": name}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
