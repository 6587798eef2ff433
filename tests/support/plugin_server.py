"""An API server for unit tests of the plugin: objects by path, what was written,
and the lines of watches and logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.api_client import ApiClient, ApiRefused, NoSuchResource, ObjectNotFound

__all__ = ["PluginServer", "event", "fluxjob", "fluxjobs_path"]


def fluxjobs_path(namespace: str | None = "default") -> str:
    """Return the path of the FluxJobs of a namespace, or of all (None)."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{names.API_VERSION}{where}/{names.FLUXJOBS}"


def fluxjob(
    name: str = "lammps",
    *,
    kind: str = "Job",
    queue: str = "default",
    pods: int = 4,
    namespace: str = "default",
    **status: object,
) -> FluxJob:
    """Return a FluxJob of an object; its uid is the name of the object."""
    return FluxJob(
        metadata=ObjectMeta(
            name=f"{kind.lower()}-{name}-1a2b3",
            namespace=namespace,
            uid=f"fj-{name}",
            creation_timestamp="2026-03-02T11:50:00Z",
            resource_version="5",
        ),
        spec=FluxJobSpec(
            object_ref=ObjectRef(kind=kind, name=name, uid=name), queue=queue, pods=pods, duration_seconds=600
        ),
        status=msgspec.convert(status, FluxJobStatus),
    )


class PluginServer:
    """Answers like `ApiClient`."""

    def __init__(self, **_: object) -> None:
        self.objects: dict[str, Any] = {}
        self.written: list[tuple[str, str, Any]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.streams: dict[str, list[bytes]] = {}
        self.refusals: dict[str, ApiRefused] = {}

    @property
    def client(self) -> ApiClient:
        """The server as its client."""
        return cast(ApiClient, self)

    def has(self, path: str, *items: object, version: str = "9") -> PluginServer:
        """Give it the objects of a list, and return it."""
        documents = [json.loads(msgspec.json.encode(item)) for item in items]
        self.objects[path] = {"metadata": {"resourceVersion": version}, "items": documents}
        return self

    def has_jobs(self, *jobs: FluxJob, namespace: str | None = "default") -> PluginServer:
        """Give it the FluxJobs of a namespace, and return it."""
        for job in jobs:
            self.objects[f"{fluxjobs_path(job.metadata.namespace)}/{job.metadata.name}"] = json.loads(
                msgspec.json.encode(job)
            )
        return self.has(fluxjobs_path(namespace), *jobs)

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        accept: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Answer a read."""
        del accept, headers
        self.asked.append((path, dict(params or {})))
        selector = (params or {}).get("labelSelector")
        found = (
            self.objects.get(f"{path}?{selector}", self.objects.get(path))
            if selector
            else self.objects.get(path)
        )
        self._refuse("GET", path)
        if found is None:
            missing = (
                ObjectNotFound
                if path.rsplit("/", 1)[-1].count("-") or "/namespaces/" in path
                else NoSuchResource
            )
            raise missing(404, "NotFound", f"{path} not found")
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def patch(self, path: str, change: Mapping[str, Any]) -> bytes:
        """Record a patch, and show a hold as the queue does."""
        self._refuse("PATCH", path)
        self.written.append(("PATCH", path, change))
        if (hold := change.get("spec", {}).get("hold")) is not None and path in self.objects:
            self.objects[path]["status"]["reason"] = "Held" if hold else ""
        return b"{}"

    def post(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Record a new object and return it."""
        del headers
        self._refuse("POST", path)
        self.written.append((f"POST{'?dryRun' if (params or {}).get('dryRun') else ''}", path, body))
        return json.dumps(self.objects.get(f"POST {path}", body)).encode()

    def watch(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """Yield the events of a watch, once."""
        del timeout_s
        self.asked.append((path, dict(params or {})))
        self._refuse("WATCH", path)
        lines, self.streams[path] = self.streams.get(path, []), []
        if not lines:
            raise KeyboardInterrupt
        yield from lines

    def lines(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """Yield the lines of a log."""
        del timeout_s
        self.asked.append((path, dict(params or {})))
        self._refuse("GET", path)
        yield from self.streams.get(path, [])

    def again(self) -> PluginServer:
        """Return itself."""
        return self

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> PluginServer:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def _refuse(self, method: str, path: str) -> None:
        for key, refusal in self.refusals.items():
            if f"{method} {path}".endswith(key):
                raise refusal


def event(kind: str, job: FluxJob) -> bytes:
    """Return a watch event."""
    return msgspec.json.encode({"type": kind, "object": job}) + b"\n"
