"""A pod whose log goes on, and what it uses, for pages of the dashboard in a browser."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator

from support.dashboard_site import Stage

from fluxqueue.api.fluxjobs import State
from fluxqueue.cli.pod_metrics import METRICS_GROUP
from fluxqueue.dashboard.rendering import job_link
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.wire import Request

_RUNS: dict[str, object] = {"running": {}}


class Printer:
    """The first pod of a job that runs; ``readers`` follow its log.

    Parameters
    ----------
    stage
        Where.
    """

    def __init__(self, stage: Stage) -> None:
        row = min(
            (row for row in stage.state.table.rows() if row.state == State.RUNNING), key=lambda row: row.uid
        )
        ref = row.job.spec.object_ref
        self.page = job_link(row.namespace, row.job.metadata.name)
        self.pod = f"{ref.name}-0-x7k2p"
        self.readers = 0
        self._stage = stage
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._path = PODS.path(row.namespace)
        statuses = [{"name": name, "restartCount": 0, "state": _RUNS} for name in ("main", "sidecar")]
        labels = {"batch.kubernetes.io/controller-uid": ref.uid}
        index = {"batch.kubernetes.io/job-completion-index": "0"}
        pod = {
            "metadata": {
                "name": self.pod,
                "namespace": row.namespace,
                "labels": labels,
                "annotations": index,
            },
            "spec": {
                "nodeName": next(iter(row.shares)),
                "containers": [{"name": "main"}, {"name": "sidecar"}],
            },
            "status": {"phase": "Running", "containerStatuses": statuses},
        }
        stage.api.objects[self._path] = {"items": [pod]}
        use = {"containers": [{"usage": {"cpu": "9300m", "memory": "4Gi"}}]}
        metrics = {"items": [{"metadata": {"name": self.pod}, **use}]}
        stage.api.objects[f"{METRICS_GROUP}/v1beta1/namespaces/{row.namespace}/pods"] = metrics
        path = PODS.path(row.namespace, self.pod, "log")
        stage.api.objects[path] = b"step 1 of 4000, 0.31 s\n"
        stage.api.logs[path] = self._followed

    def prints(self, line: str) -> None:
        """Print a line."""
        self._lines.put(line)

    def goes(self) -> None:
        """Let the pod be deleted."""
        self._stage.api.objects[self._path] = {"items": []}
        self._lines.put(None)

    async def _followed(self, request: Request) -> AsyncGenerator[list[bytes], None]:
        self.readers += 1
        try:
            if (request.query or {}).get("container") == "sidecar":
                yield [b"of the sidecar"]
            yield [f"step {step} of 4000, {0.31 * step:.2f} s".encode() for step in range(1, 13)]
            while True:
                try:
                    line = self._lines.get_nowait()
                except queue.Empty:
                    await asyncio.sleep(0.05)
                    continue
                if line is None:
                    return
                yield [line.encode()]
        finally:
            self.readers -= 1
