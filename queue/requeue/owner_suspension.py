"""Suspends the owner of a gang that is preempted, and resumes it when none of its pods is left
(`fluxqueue.queue.model.owner_handles`).

The mark ``fluxqueue/suspended-by-queue``, with the job id of the allocation that is freed, is set and removed
in the same write as the field. So an owner that is suspended without it was suspended by a person, and stays
as it is. If the process ends in between, the next leader reads the mark. Whatever happened to the gang
meanwhile, no owner stays suspended by the queue: each sweep resumes those whose gang does not free its nodes
any more.
"""

from __future__ import annotations

import contextlib
import enum
from typing import Any

import structlog

from fluxqueue.api import names
from fluxqueue.api.metadata import PartialObject
from fluxqueue.kube.decoding import decode
from fluxqueue.kube.errors import ApiError, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.groups import jobset_of
from fluxqueue.queue.model.jobids import parse_jobid
from fluxqueue.queue.model.owner_handles import (
    HANDLES,
    OwnerHandle,
    SuspendableObject,
    handle_of,
    handle_of_owner,
    is_suspended,
)
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.sources.registry import source_of_object
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["OwnerSuspender", "Suspension"]

log = structlog.get_logger()

_Found = tuple[OwnerHandle, SuspendableObject]


class _ReviewStatus(PartialObject, frozen=True):
    allowed: bool = False


class _Review(PartialObject, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class Suspension(enum.Enum):
    """What came of suspending an owner."""

    DONE = "done"
    """It is suspended: its controller deletes its pods."""
    AGAIN = "again"
    """It changed, or could not be read: it is to be tried again."""
    NONE = "none"
    """It has no handle, is gone, or refuses it, or the queue has no right to it:
    its pods can only be evicted."""


class OwnerSuspender:
    """Suspends and resumes owners.

    Parameters
    ----------
    api, caches, ledger
        Where owners are patched, which kinds of owners there are, and which gangs free their nodes.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._rights: dict[OwnerHandle, bool] = {}

    def may_suspend(self, handle: OwnerHandle) -> bool:
        """True if the queue has the right to suspend the owners of a kind, as the last sweep found."""
        return self._rights.get(handle, False)

    async def suspend(self, workload: Workload, allocation: Allocation) -> Suspension:
        """Suspend the owner of a gang."""
        try:
            found = await self._find(workload)
            if found is None:
                return Suspension.NONE
            handle, owner = found
            if not is_suspended(handle, owner):
                set_back = owner.metadata.label(names.SUSPENDED_BY_QUEUE_LABEL) == str(allocation.jobid)
                owner = await self._patch(handle, owner, str(allocation.jobid), suspend=True)
                if set_back or not is_suspended(handle, owner):
                    log.warning(
                        "owner.not_suspended", workload=workload.id, error="the field is dropped, or set back"
                    )
                    return Suspension.NONE
                log.info(
                    "owner.suspended",
                    workload=workload.id,
                    owner=f"{handle.kind} {workload.namespace}/{owner.metadata.name}",
                )
                reach(CrashPoint.OWNER_SUSPENDED)
        except (Forbidden, Invalid, NotFound) as error:
            log.warning("owner.not_suspended", workload=workload.id, error=str(error))
            return Suspension.NONE
        except ApiError as error:
            log.info("owner.not_suspended_yet", workload=workload.id, error=str(error))
            return Suspension.AGAIN
        return Suspension.DONE

    async def resume(self, workload: Workload) -> bool:
        """Resume the owner of a gang if the queue suspended it; False if that is to be tried again."""
        try:
            found = await self._find(workload)
            if found is not None:
                await self._resume(*found)
        except (Forbidden, NotFound):
            return True
        except ApiError as error:
            log.info("owner.not_resumed_yet", workload=workload.id, error=str(error))
            return False
        return True

    async def repair(self) -> bool:
        """Ask for the rights again, and resume each owner that the queue suspended and whose gang does not
        free its nodes now.

        Returns
        -------
        bool
            True if the queue may suspend other kinds of owners than before.
        """
        former = dict(self._rights)
        for handle in HANDLES:
            with contextlib.suppress(ApiError):  # it is not served any more, or the next sweep repairs it
                self._rights[handle] = await self._may("patch", handle)
                if not await self._is_in_use(handle):
                    continue
                for owner in await self._api.list(
                    _kind(handle), label_selector=names.SUSPENDED_BY_QUEUE_LABEL
                ):
                    jobid = parse_jobid(owner.metadata.label(names.SUSPENDED_BY_QUEUE_LABEL))
                    row = self._ledger.by_jobid(jobid) if jobid is not None else None
                    if self._caches.manages(owner.metadata.namespace) and (row is None or not row.evicting):
                        with contextlib.suppress(ApiError):  # of one object
                            await self._resume(handle, owner)
        return self._rights != former

    async def _is_in_use(self, handle: OwnerHandle) -> bool:
        """True if there may be objects of a kind: none is listed that the cluster does not serve,
        or that the queue must not list.
        """
        source = source_of_object(f"{handle.group}/{handle.version}", handle.kind)
        if source is not None:
            return self._caches.gang_objects.find(source, "", "").readable is Readable.YES
        return any(jobset_of(job) is not None for job in self._caches.jobs.list()) and await self._may(
            "list", handle
        )

    async def _may(self, verb: str, handle: OwnerHandle) -> bool:
        """Ask whether the queue has the right, which the chart grants only where the kind is installed."""
        attributes = {"verb": verb, "group": handle.group, "resource": handle.plural}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._api.request("POST", path, body={"spec": {"resourceAttributes": attributes}})
        return decode(answer, _Review, f"create {path}").status.allowed

    async def _resume(self, handle: OwnerHandle, owner: SuspendableObject) -> None:
        if owner.metadata.label(names.SUSPENDED_BY_QUEUE_LABEL) is None:
            return
        await self._patch(handle, owner, None, suspend=False)
        log.info("owner.resumed", owner=f"{handle.kind} {owner.metadata.namespace}/{owner.metadata.name}")
        reach(CrashPoint.OWNER_RESUMED)

    async def _find(self, workload: Workload) -> _Found | None:
        """Return the object of a gang, or what controls that, if it can be suspended;
        None if there is none.
        """
        handle = handle_of(workload.api_version, workload.kind)
        if handle is None:
            return None
        owner = await self._api.get(_kind(handle), workload.name, workload.namespace)
        above = handle_of_owner(owner.metadata.controller)
        if above is None or owner.metadata.controller is None:
            return handle, owner
        return above, await self._api.get(_kind(above), owner.metadata.controller.name, workload.namespace)

    async def _patch(
        self, handle: OwnerHandle, owner: SuspendableObject, mark: str | None, *, suspend: bool
    ) -> SuspendableObject:
        """Set the field and the mark together, in the version that was read; return the object after that.

        Raises
        ------
        ApiError
            `Conflict` if it changed meanwhile.
        """
        meta = owner.metadata
        marked: dict[str, Any] = {
            "resourceVersion": meta.resource_version,
            "labels": {names.SUSPENDED_BY_QUEUE_LABEL: mark},
        }
        body = {"metadata": marked, "spec": handle.spec(suspend=suspend)}
        return await self._api.patch(
            _kind(handle), meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE
        )


def _kind(handle: OwnerHandle) -> Kind[SuspendableObject]:
    return Kind(handle.group, handle.version, handle.plural, handle.kind, True, SuspendableObject)
