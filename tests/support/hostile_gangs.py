"""Gangs as other projects describe them, for hostile writes:
the examples of the documentation, and what their controllers would make.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from support.builders import Json, make_pod
from support.gang_standins import RUN_SECONDS, example, jobs_of_jobset
from support.kubernetes_gates import EXAMPLE_VERSION, NATIVE_VERSION

from fluxqueue.queue.model.sources.registry import SOURCES

__all__ = ["GANG_EXAMPLES", "GANG_KINDS", "NATIVE_KIND", "children_of", "gang", "group_and_plural"]

GANG_KINDS = {
    "jobsets.jobset.x-k8s.io": ("v1alpha2", "JobSet"),
    "podgroups.scheduling.x-k8s.io": ("v1alpha1", "PodGroup"),
    "podgroups.scheduling.volcano.sh": ("v1beta1", "PodGroup"),
    "leaderworkersets.leaderworkerset.x-k8s.io": ("v1", "LeaderWorkerSet"),
    "mpijobs.kubeflow.org": ("v2beta1", "MPIJob"),
    "pytorchjobs.kubeflow.org": ("v1", "PyTorchJob"),
    "rayclusters.ray.io": ("v1", "RayCluster"),
    "sparkapplications.sparkoperator.k8s.io": ("v1beta2", "SparkApplication"),
    "appwrappers.workload.codeflare.dev": ("v1beta2", "AppWrapper"),
}
"""Kinds of other projects, with version and kind."""
NATIVE_KIND = "podgroups.scheduling.k8s.io"
GANG_EXAMPLES = (
    "jobset",
    "podgroup-kubernetes",
    "podgroup-kueue",
    "podgroup-scheduler-plugins",
    "podgroup-volcano",
    "leaderworkerset",
    "mpijob",
    "pytorchjob",
    "raycluster",
    "sparkapplication",
    "appwrapper",
)
_COLLECTIONS = {
    (f"{name.partition('.')[2]}/{version}", kind): name for name, (version, kind) in GANG_KINDS.items()
}
_COLLECTIONS |= {
    (f"scheduling.k8s.io/{NATIVE_VERSION or EXAMPLE_VERSION}", "PodGroup"): NATIVE_KIND,
    ("v1", "Pod"): "pods",
}
_MARKS = sorted({mark for source in SOURCES for mark in source.marks})


def group_and_plural(collection: str) -> tuple[str, str]:
    """Return the API path and the plural of a kind of `GANG_KINDS`, or of the native one."""
    plural, _, group = collection.partition(".")
    version = GANG_KINDS[collection][0] if collection in GANG_KINDS else NATIVE_VERSION or EXAMPLE_VERSION
    return f"/apis/{group}/{version}", plural


def gang(kind: str, name: str) -> list[tuple[str, Json]]:
    """Return the objects of an example under another name, each with its collection."""
    things = [each for each in example(kind) if each]
    if len(things) > 1:  # pods name their group in several ways
        former = next((each["metadata"]["name"] for each in things if each["kind"] != "Pod"), "sample")
        things = json.loads(json.dumps(things).replace(former, name))
    else:
        things[0]["metadata"]["name"] = name
    renamed: list[Json] = things
    for each in renamed:
        if each["kind"] == "Pod":
            each["metadata"].setdefault("annotations", {})[RUN_SECONDS] = "1"
            each["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m"}}
        elif each["kind"] == "JobSet":
            each["status"] = {
                "terminalState": "",
                "conditions": [{"type": "Completed", "status": "False"}],
                "restarts": 0,
            }
    return [(_COLLECTIONS[each["apiVersion"], each["kind"]], each) for each in renamed]


def children_of(stored: Json, marks: Sequence[int]) -> list[tuple[str, Json]]:
    """Return Jobs or pods that the controller of a stored object would make;
    ``marks`` chooses the labels by which pods say their place.
    """
    meta = stored["metadata"]
    owner = {
        "apiVersion": stored["apiVersion"],
        "kind": stored["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    if stored["kind"] == "JobSet":
        try:
            return [("jobs", each) for each in jobs_of_jobset(stored, owner)]
        except (KeyError, TypeError):
            return []  # what it describes is damaged
    pods = []
    for number in range(2):
        pod = (
            make_pod(f"{meta['name']}-{number}")
            .cpu("10m")
            .annotation(RUN_SECONDS, "1")
            .with_("metadata.ownerReferences", [owner])
        )
        for mark in marks:
            pod = pod.label(_MARKS[mark % len(_MARKS)], meta["name"] if mark % 3 else str(mark % 5))
        pods.append(("pods", pod.build()))
    return pods
