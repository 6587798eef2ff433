"""The Job controller, scheduler and kubelet of the simulated cluster, in one: pods start as soon as their Job
is resumed.

A released Job gets its pods at once. Each is admitted by the webhook's code, bound to the node that this
gives it, and runs until the benchmark ends its Job. A pod that the webhook gates runs as soon as the queue
has given it a node and removed the gate.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from scale_objects import NAMESPACE, Json, admitted, pending_job, pods_of, running_job, succeeded
from scale_store import ObjectStore

__all__ = ["JobRunner"]

_STARTED = "2026-11-22T08:00:01Z"
_ENDED = "2026-11-22T09:00:00Z"


class JobRunner:
    """Runs the Jobs of a store.

    Attributes
    ----------
    running
        Names of the running Jobs of one pod, in the order of their starts.
    """

    def __init__(self, store: ObjectStore, seed: int) -> None:
        self.running: deque[str] = deque()
        self._store = store
        self._chance = random.Random(seed)
        self._made: dict[str, int] = {}
        self._started: set[str] = set()
        store.changed = self._changed

    def make(self, what: str, count: int) -> int:
        """Create Jobs, ``running`` or ``pending``; return how many there are of them in all."""
        made = self._made.get(what, 0)
        for number in range(made, made + count):
            job = (
                running_job(number, self._chance) if what == "running" else pending_job(number, self._chance)
            )
            self._store.create("jobs", NAMESPACE, job)
        self._made[what] = made + count
        return made + count

    def finish(self, count: int) -> list[str]:
        """End running Jobs, the oldest first; return their names."""
        names = [self.running.popleft() for _ in range(min(count, len(self.running)))]
        for name in names:
            job = self._store.get("jobs", NAMESPACE, name)
            for number in range(job["spec"]["completions"]):
                pod = self._store.get("pods", NAMESPACE, f"{name}-{number}")
                self._store.replace("pods", pod, {**pod, "status": succeeded(pod["status"])})
            completed = {"type": "Complete", "status": "True", "lastTransitionTime": _ENDED}
            status = {
                "startTime": _STARTED,
                "completionTime": _ENDED,
                "succeeded": job["spec"]["completions"],
                "conditions": [completed],
            }
            self._store.replace("jobs", job, {**job, "status": status})
        return names

    def _changed(self, plural: str, former: Json | None, present: Json | None) -> None:
        if present is None:
            return
        if plural == "jobs" and former is not None and not present["spec"].get("suspend"):
            self._start(present)
        elif plural == "pods" and former is not None and present["status"].get("phase") == "Pending":
            self._bind(present, _pinned_node(present))

    def _start(self, job: Json) -> None:
        uid = job["metadata"]["uid"]
        if uid in self._started:
            return
        self._started.add(uid)
        for pod in pods_of(job):
            allowed, node = admitted(pod)
            self._bind(self._store.create("pods", NAMESPACE, allowed), node)
        job = self._store.get("jobs", NAMESPACE, job["metadata"]["name"])
        count = job["spec"]["completions"]
        self._store.replace(
            "jobs", job, {**job, "status": {"startTime": _STARTED, "active": count, "ready": count}}
        )
        if job["metadata"]["name"].startswith("run-"):
            self.running.append(job["metadata"]["name"])

    def _bind(self, pod: Json, node: str) -> None:
        """Bind a pod and let it run, if it has a node and no gate."""
        if not node or pod["spec"].get("schedulingGates") or pod["spec"].get("nodeName"):
            return
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _STARTED}
            for kind in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "startTime": _STARTED, "conditions": conditions}
        self._store.replace("pods", pod, {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})


def _pinned_node(pod: Json) -> str:
    """Return the node to which the required node affinity of a pod ties it; empty if there is none."""
    affinity: Any = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in (affinity or {}).get("nodeSelectorTerms") or ():
        for rule in term.get("matchFields") or ():
            if rule["key"] == "metadata.name" and rule["operator"] == "In":
                return str(rule["values"][0])
    return ""
