"""A pod whose log goes on, and what it uses, for pages of the dashboard in a browser."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from support.dashboard_site import Stage

from fluxqueue.api.fluxjobs import State
from fluxqueue.cli.pod_metrics import METRICS_GROUP
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.rendering import job_link
from fluxqueue.kube.kinds import EVENTS, FLUXJOBS, JOBS, PODS
from fluxqueue.kube.wire import Request

_RUNS: dict[str, object] = {"running": {}}


def _pod(row: JobRow, rank: int, host: str) -> dict[str, Any]:
    ref = row.job.spec.object_ref
    containers = [{"name": name} for name in ("main", "sidecar")]
    statuses = [{**each, "restartCount": 0, "state": _RUNS} for each in containers]
    return {
        "metadata": {
            "name": f"{ref.name}-{rank}-x7k2p",
            "namespace": row.namespace,
            "labels": {"batch.kubernetes.io/controller-uid": ref.uid},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
        },
        "spec": {"nodeName": host, "containers": containers},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }


class Printer:
    """The first pod of a job that runs; ``readers`` follow its log.

    Parameters
    ----------
    stage
        Where.
    """

    def __init__(self, stage: Stage) -> None:
        running = (row for row in stage.state.table.rows() if row.state == State.RUNNING)
        row = max(running, key=lambda row: (len(row.shares), row.uid))
        ref = row.job.spec.object_ref
        self.page = job_link(row.namespace, row.job.metadata.name)
        self.pod = f"{ref.name}-0-x7k2p"
        self.readers = 0
        self._stage = stage
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._path = PODS.path(row.namespace)
        pods = [_pod(row, rank, host) for rank, host in enumerate(row.shares)]
        objects = stage.api.objects
        objects[self._path] = {"items": pods}
        uses = [
            {"usage": {"cpu": f"{9_300 + 240 * rank % 700}m", "memory": "9Gi"}} for rank in range(len(pods))
        ]
        metrics = [
            {"metadata": {"name": pod["metadata"]["name"]}, "containers": [use]}
            for pod, use in zip(pods, uses, strict=True)
        ]
        objects[f"{METRICS_GROUP}/v1beta1/namespaces/{row.namespace}/pods"] = {"items": metrics}
        said = {"type": "Normal", "count": 1, "lastTimestamp": row.job.status.started_at}
        events = [
            {**said, "reason": "Allocated", "message": f"has {len(pods)} nodes: {row.nodes}"},
            {**said, "reason": "SuccessfulCreate", "message": f"Created pod: {self.pod}"},
        ]
        objects[EVENTS.path(row.namespace)] = {"items": events}
        objects[JOBS.path(row.namespace, ref.name)] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": ref.name, "uid": ref.uid},
            "spec": {"completions": len(pods), "parallelism": len(pods)},
        }
        objects[FLUXJOBS.path(row.namespace, row.job.metadata.name)] = msgspec.to_builtins(row.job)
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
