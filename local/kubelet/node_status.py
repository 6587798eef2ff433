"""The Node objects and Leases of an agent, kept as a kubelet keeps them.

A Lease is renewed every 10 s and valid for 40 s, and the status is written when something changes and every 5
min (``nodeStatusUpdateFrequency`` and ``nodeLeaseDurationSeconds`` of a kubelet). The capacity of a node is
what its object says: all nodes share this machine, so their sizes are numbers for the queue and no measure of
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.transport import Api, PatchType

__all__ = ["DOWN_ANNOTATION", "AgentNode", "NodeStatusWriter", "node_status"]

log = structlog.get_logger(__name__)

DOWN_ANNOTATION = "fluxqueue.local/down"
"""A node with this annotation is not Ready, as if its machine were off."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWED_EVERY_S = 10.0
STATUS_EVERY_S = 300.0
_LEASE_S = 40
_PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


class _Capacity(PartialObject, frozen=True):
    allocatable: dict[str, str] | None = None


class AgentNode(PartialObject, frozen=True):
    """A Node, as far as the agent reads it."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Capacity = _Capacity()


def node_status(
    address: str, port: int, info: Mapping[str, str], name: str, now: datetime, *, ready: bool
) -> dict[str, Any]:
    """Return the status of a node, for a strategic merge patch."""
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    values = [
        (
            "Ready",
            ready,
            "KubeletReady" if ready else "KubeletNotReady",
            "the node agent runs" if ready else "it is set down",
        )
    ]
    values += [(kind, False, reason, "") for kind, reason in _PRESSURES.items()]
    conditions = [
        {
            "type": kind,
            "status": str(value),
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": moment,
        }
        for kind, value, reason, message in values
    ]
    return {
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
            {"$patch": "replace"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": dict(info),
    }


class NodeStatusWriter:
    """Writes the status and the Lease of every node."""

    def __init__(
        self, api: Api, nodes: ObjectCache[AgentNode], address: str, port: int, info: Mapping[str, str]
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._address = address
        self._port = port
        self._info = info
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._down: dict[str, bool] = {}
        nodes.add_handler(self._changed)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_changed())
            group.create_task(self._renew())
            group.create_task(self._write_all())

    def _changed(self, change: Change[AgentNode]) -> None:
        name = change.obj.metadata.name
        if change.kind is ChangeKind.DELETED:
            self._down.pop(name, None)
            return
        down = change.obj.metadata.annotation(DOWN_ANNOTATION) == "true"
        if self._down.get(name) != down:
            self._down[name] = down
            self._new.put_nowait(name)

    async def _write_changed(self) -> None:
        while True:
            name = await self._new.get()
            if not self._down.get(name, False):
                await self._renew_one(name)
            await self._write(name)

    async def _write_all(self) -> None:
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            for name in [*self._down]:
                await self._write(name)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            for name, down in [*self._down.items()]:
                if not down:
                    await self._renew_one(name)

    async def _write(self, name: str) -> None:
        if name not in self._down:
            return
        body = {
            "status": node_status(
                self._address, self._port, self._info, name, datetime.now(UTC), ready=not self._down[name]
            )
        }
        try:
            await self._api.request(
                "PATCH", f"/api/v1/nodes/{name}/status", body=body, content_type=PatchType.STRATEGIC.value
            )
        except NotFound:
            self._down.pop(name, None)
        except ApiError as error:
            log.warning("node.status_not_written", node=name, error=str(error))
            await asyncio.sleep(1)
            self._new.put_nowait(name)

    async def _renew_one(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_S,
            "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
        }
        try:
            try:
                await self._api.request(
                    "PATCH", f"{LEASES}/{name}", body={"spec": spec}, content_type=PatchType.MERGE.value
                )
            except NotFound:
                node = self._nodes.get("", name)
                if node is None:
                    return
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
                lease = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name, "ownerReferences": [owner]},
                }
                await self._api.request("POST", LEASES, body={**lease, "spec": spec})
        except ApiError as error:
            with contextlib.suppress(Exception):
                log.warning("node.lease_not_renewed", node=name, error=str(error))
