"""Writes the status of FluxJobs that exist.

The status is no subresource of the present CRD: one request creates a FluxJob with its status, and the same
path changes both. It is one in the CRD of versions up to 0.1, which a cluster has while an upgrade or a
rollback is under way, or for long if somebody else keeps the CRDs. Then the API server drops the status of
such a request without an error. So the answer is read, and a status that is not in it is written by the
subresource. What worked is used for the next write.
"""

from __future__ import annotations

from typing import Any

import structlog

from fluxqueue.api.fluxjobs import FluxJobStatus
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.status.fluxjob_status import status_json

__all__ = ["FluxJobStatusWrites"]

log = structlog.get_logger()

_SUBRESOURCE = "status"


class FluxJobStatusWrites:
    """Patches the status of FluxJobs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._subresource: str | None = None

    async def write(self, meta: ObjectMeta, status: FluxJobStatus) -> None:
        """Make the status of a FluxJob equal to this one.

        Parameters
        ----------
        meta
            Of the FluxJob: another one that has its name now is not changed.
        status
            What it shall show.

        Raises
        ------
        NotFound
            The FluxJob is gone.
        Invalid
            Another FluxJob has its name now, or the API server refuses the status.
        ApiError
            See :meth:`fluxqueue.kube.transport.Api.patch`.
        """
        if self._subresource is None:
            if await self._patch(meta, status, None) == status:
                return
            try:
                written = await self._patch(meta, status, _SUBRESOURCE)
            except NotFound:
                return  # there is no subresource: the schema of the API server has changed what was sent
            if written == status:
                self._use(_SUBRESOURCE)
            return
        try:
            await self._patch(meta, status, self._subresource)
        except NotFound:
            await self._patch(meta, status, None)
            self._use(None)

    async def _patch(self, meta: ObjectMeta, status: FluxJobStatus, subresource: str | None) -> FluxJobStatus:
        body: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "add", "path": "/status", "value": status_json(status)},
        ]
        patched = await self._api.patch(
            FLUXJOBS,
            meta.name,
            body,
            namespace=meta.namespace,
            patch_type=PatchType.JSON,
            subresource=subresource,
        )
        return patched.status

    def _use(self, subresource: str | None) -> None:
        self._subresource = subresource
        log.info("fluxjob.status_path_changed", subresource=subresource or "")
