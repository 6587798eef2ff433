"""The API server in memory with watches, for the unit tests of the Python client,
which has no caches of the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import orjson
from support.memory_api import MemoryApi

from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.kube.errors import decode_error
from fluxqueue.kube.wire import Request

__all__ = ["WatchedApi"]

Json = dict[str, Any]


class WatchedApi(MemoryApi):
    """The API server in memory; a watch yields every change from its start.

    Attributes
    ----------
    managed
        True if admission sees the Jobs and Pods that are created.
    unknown_fields
        Fields of a spec that the server does not know, and drops unless it is asked to be strict.
    logs
        The output of pods, by their names; the status of an error instead of text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[tuple[str, asyncio.Queue[bytes]]] = []
        self.logs: dict[str, str | int] = {}
        self.managed = True
        self.unknown_fields: set[str] = set()

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        """Answer one request; a dry run stores nothing, and a log is text."""
        parts = request.path.split("/")
        if parts[-1] == "log":
            found = self.logs.get(parts[-2], 404)
            if isinstance(found, int):
                raise decode_error(found, b"{}", action=f"get {request.path}")
            return found.encode()
        if request.method == "POST" and parts[-1] in ("jobs", "pods"):
            body = self._admitted(orjson.loads(request.body or b"{}"))
            if (request.query or {}).get("fieldValidation") == "Strict" and (
                unknown := set(body["spec"]) & self.unknown_fields
            ):
                message = f'strict decoding error: unknown field "spec.{min(unknown)}"'
                raise decode_error(
                    400, orjson.dumps({"reason": "BadRequest", "message": message}), action=request.action
                )
            if (request.query or {}).get("dryRun"):
                return orjson.dumps(body)
            request = replace(request, kind=parts[-1], body=orjson.dumps(body))
        return await super().call(request, timeout_s, tries=tries)

    async def stream(
        self, request: Request, *, idle_s: float, whole: bool = True, longest: int = 0
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the changes of a kind, or the lines of a log."""
        del idle_s, whole, longest
        if request.path.endswith("/log"):
            yield []
            yield (await self.call(request)).splitlines()
            return
        for failure in self._failures:
            if failure[:2] == ("watch", request.kind):
                raise failure[2]()
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.append((request.kind, changes))
        yield []
        while True:
            yield [await changes.get()]

    def show(self, kind: str, name: str, uid: str, *, owners: tuple[str, ...] = (), **status: Any) -> None:
        """Write the FluxJob of an object, as the queue does."""
        self.put(
            "fluxjobs",
            {
                "metadata": {
                    "name": fluxjob_name(kind, name, uid),
                    "namespace": "team",
                    "ownerReferences": [{"kind": "Pod", "name": owner, "uid": owner} for owner in owners],
                },
                "spec": {
                    "objectRef": {"kind": kind, "name": name, "uid": uid},
                    "queue": "default",
                    "pods": 1,
                },
                "status": status,
            },
        )

    def uid_of(self, plural: str, name: str, namespace: str = "team") -> str:
        """Return the uid of an object."""
        return str(self.get(plural, name, namespace)["metadata"]["uid"])

    def _admitted(self, body: Json) -> Json:
        meta = body.setdefault("metadata", {})
        if self.managed:
            meta["labels"] = {**(meta.get("labels") or {}), "fluxqueue.seen": "yes"}
        return body

    def _deliver(self, plural: str, body: Json, *, gone: bool) -> None:
        super()._deliver(plural, body, gone=gone)
        event = orjson.dumps({"type": "DELETED" if gone else "MODIFIED", "object": body})
        for kind, changes in self._watchers:
            if kind == plural:
                changes.put_nowait(event)
