"""Writes the status of MiniClusters, seldom enough for many brokers that join one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from fluxqueue.api.miniclusters import MiniClusterStatus
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.kinds import MINICLUSTERS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.miniclusters.minicluster_status import MiniClusterContext, status_of

__all__ = ["SETTLES_S", "MiniClusterStatusWriter"]

SETTLES_S = 0.3
"""A state that lasts for a shorter time is not written."""
_PACE_S = 2.0
"""How often a status is written whose state stays the same."""


class MiniClusterStatusWriter:
    """Writes a status that has differed for long enough.

    Parameters
    ----------
    api
        Where it is written.
    clock
        The time, for conditions that change.
    """

    def __init__(self, api: Api, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._clock = clock
        self._differs_since: dict[str, float] = {}

    async def write(self, context: MiniClusterContext) -> float | None:
        """Write the status if it is time; return the seconds until it is,
        None if there is nothing to write.
        """
        meta, before, now = (
            context.minicluster.metadata,
            context.minicluster.status,
            status_of(context, self._clock()),
        )
        if _ordered(before) == _ordered(now):
            self._differs_since.pop(meta.uid, None)
            return None
        loop_now = asyncio.get_running_loop().time()
        since = self._differs_since.setdefault(meta.uid, loop_now)
        wait_s = (SETTLES_S if before.state != now.state else _PACE_S) - (loop_now - since)
        if wait_s > 0:
            return wait_s
        body = {"metadata": {"uid": meta.uid}, "status": _merge_patch(now)}
        try:
            await self._api.patch(
                MINICLUSTERS,
                meta.name,
                body,
                namespace=meta.namespace,
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except (NotFound, Conflict):
            return None
        self._differs_since.pop(meta.uid, None)
        return None

    def forget(self, uid: str) -> None:
        """Forget a MiniCluster that is deleted."""
        self._differs_since.pop(uid, None)


def _ordered(status: MiniClusterStatus) -> MiniClusterStatus:
    return msgspec.structs.replace(
        status, conditions=sorted(status.conditions or (), key=lambda condition: condition.type)
    )


def _merge_patch(status: MiniClusterStatus) -> dict[str, Any]:
    """Return the status with null for each empty field, which removes it."""
    fields = msgspec.to_builtins(status)
    return {field.encode_name: fields.get(field.encode_name) for field in msgspec.structs.fields(status)}
