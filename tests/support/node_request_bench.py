"""A queue that requests nodes from an autoscaler, on an API server in memory."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from support.builders import make_job, make_queue
from support.controller_bench import RecordedEvents, subscribed
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, fluxjob_name
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.provisioning.provisioner import Provisioner

__all__ = ["NAMESPACE", "NodeRequestBench", "conditions"]

NAMESPACE = "fluxqueue-system"
Json = dict[str, Any]


class NodeRequestBench:
    """A queue that requests nodes, in the way given."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.server = MemoryApi()
        self.server.status_subresources["pods"] = True
        self.caches = Caches(self.server.api, own_namespace=NAMESPACE)
        self.server.show_in(self.caches)
        self.server.put("fluxqueues", make_queue("growing", provision=way))
        self.ledger = RecordingLedger()
        self.events = RecordedEvents()
        self._seconds = itertools.count()

    def provisioner(self) -> Provisioner:
        """Return a provisioner as a new leader makes it."""
        return subscribed(
            Provisioner(self.server.api, self.caches, self.ledger, self.events.recorder),
            self.caches,
            self.ledger,
        )

    def wait(
        self,
        name: str,
        pods: int = 3,
        reason: Reason = Reason.PROVISIONING,
        labels: Json | None = None,
        namespace: str = "default",
        **spec: Any,
    ) -> Workload:
        """Submit a Job that waits for nodes; its pods have these fields, and ``labels``."""
        uid = f"uid-{name}"
        builder = (
            make_job(name)
            .indexed(pods)
            .cpu("2")
            .uid(uid)
            .namespace(namespace)
            .with_("spec.template.metadata.labels", labels or {})
        )
        for field, value in spec.items():
            builder = builder.with_(f"spec.template.spec.{field}", value)
        self.server.put("jobs", builder.build())
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        metadata = {"name": fluxjob_name("Job", name, uid), "namespace": namespace}
        self.server.put("fluxjobs", {"metadata": metadata, "spec": {"objectRef": ref}})
        submitted = EPOCH + timedelta(seconds=next(self._seconds))
        row = a_workload(
            name,
            uid=uid,
            namespace=namespace,
            pods=pods,
            queue="growing",
            reason=reason,
            submitted_at=submitted,
            shape=f"{name:x<16}",
        )
        return self.ledger.put(row)

    def rooms(self) -> dict[str, Json]:
        """Room pods by name."""
        return self._labelled("pods", names.ROOM_LABEL)

    def asking(self) -> list[str]:
        """Names of the room pods that say that they need a node."""
        return sorted(
            name
            for name, pod in self.rooms().items()
            if conditions(pod) == {"PodScheduled": ("False", "Unschedulable")}
        )

    def of(self, name: str) -> list[str]:
        """Names of the room pods of a Job that ask."""
        rooms, wanted = self.rooms(), f"/{name}"
        return [
            room
            for room in self.asking()
            if rooms[room]["metadata"]["annotations"][names.ROOM_FOR_ANNOTATION].endswith(wanted)
        ]

    def requests(self) -> dict[str, Json]:
        """ProvisioningRequests by name."""
        return self._labelled("provisioningrequests", names.PROVISIONS_LABEL)

    def count(self) -> int:
        """Number of requested pods, in either way."""
        counts: list[int] = [
            each["count"] for one in self.requests().values() for each in one["spec"]["podSets"]
        ]
        return len(self.asking()) + sum(counts)

    def nothing(self) -> bool:
        """True if no object of a request is left."""
        return (
            not self.rooms()
            and not self.requests()
            and not self._labelled("podtemplates", names.PROVISIONS_LABEL)
        )

    def _labelled(self, plural: str, label: str) -> dict[str, Json]:
        return {
            each["metadata"]["name"]: each
            for each in self.server.all(plural)
            if label in each["metadata"].get("labels", {})
        }


def conditions(pod: Json) -> dict[str, tuple[str, str]]:
    return {
        each["type"]: (each["status"], each["reason"]) for each in pod.get("status", {}).get("conditions", ())
    }
