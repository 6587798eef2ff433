"""A cluster in memory with one PersistentVolumeClaim, the Jobs and pods that name it,
and the queue's rows.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from support.builders import JobBuilder, PodBuilder, make_job
from support.queue_builders import a_job, a_pod

from fluxqueue.api.storage import PersistentVolumeClaim
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.store.ledger import Ledger

VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


class Rows:
    """The part of the ledger that the tested code reads."""

    def __init__(self) -> None:
        self.rows: list[Workload] = []

    def by_uid(self, uid: str) -> Workload | None:
        return next((row for row in self.rows if row.uid == uid), None)

    def group(self, _key: GroupKey) -> None:
        return None

    def all(self) -> list[Workload]:
        return self.rows


class ClaimCluster:
    """Caches and rows; each method applies one object."""

    def __init__(self) -> None:
        self.caches = Caches(cast("Api", None))
        self.rows = Rows()

    @property
    def ledger(self) -> Ledger:
        return cast("Ledger", self.rows)

    def claim(self, version: int = 1, *modes: str, **spec: Any) -> None:
        meta = {"name": "data", "namespace": "default", "uid": "claim", "resourceVersion": str(version)}
        phase = "Bound" if spec.get("volumeName") else "Pending"
        body = {"storageClassName": "fast", "accessModes": [*modes], **spec}
        self.caches.storage.claims.apply(
            msgspec.convert(
                {"metadata": meta, "spec": body, "status": {"phase": phase}}, PersistentVolumeClaim
            )
        )

    def job(self, uid: str, builder: JobBuilder | None = None) -> None:
        made = (builder or make_job(uid)).namespace("default").with_("spec.template.spec.volumes", VOLUMES)
        self.caches.jobs.apply(a_job(made, uid=uid))

    def pod(self, uid: str, builder: PodBuilder) -> None:
        self.caches.pods.apply(a_pod(builder.namespace("default").with_("spec.volumes", VOLUMES), uid=uid))
