"""Creates objects for an owner, and never takes over an object of another owner.

People choose the names of a Flux cluster's objects, so an object of another owner may have such a name
already. It is neither changed nor adopted: garbage collection would delete it with its new owner. So each
object is created with a plain create. If the name exists, the owner of that object decides: this owner's
object is updated, guarded by the resourceVersion that was read, and any other is a `NameConflict`.

Secrets are the exception. Nobody can read a Secret's metadata without the right to read its content, and the
queue has no right to read Secrets. Their names contain a digest of the owner's uid, and they are never
updated, so one that exists is this owner's.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fluxqueue.api.metadata import ObjectMeta, OwnerReference
from fluxqueue.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from fluxqueue.kube.kinds import CONFIG_MAPS, JOBS, NETWORK_POLICIES, PODS, SECRETS, SERVICES, Kind
from fluxqueue.kube.transport import Api, PatchType

__all__ = ["NameConflict", "OwnedObjects"]

_KINDS: dict[str, Kind[Any]] = {
    kind.kind: kind for kind in (CONFIG_MAPS, JOBS, NETWORK_POLICIES, PODS, SECRETS, SERVICES)
}
_TRIES = 5

Json = dict[str, Any]


class NameConflict(Exception):
    """An object of the name exists and belongs to another owner.

    Attributes
    ----------
    kind, namespace, name, uid
        Of the object.
    orphaned
        True if its owner had the same name and is deleted: the garbage collector is about to delete the
        object.
    """

    def __init__(
        self,
        kind: Kind[Any],
        namespace: str,
        name: str,
        uid: str,
        owner: OwnerReference | None,
        *,
        orphaned: bool,
    ) -> None:
        origin = (
            f"belongs to {owner.kind} {owner.name}" if owner is not None else "was not created by the queue"
        )
        super().__init__(
            f"{kind.describe(name, namespace)} already exists and {origin}, so it is not taken over: "
            "delete it, or choose another name"
        )
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.orphaned = orphaned


class OwnedObjects:
    """Creates, updates and deletes objects that have an owner."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def apply(self, body: Json) -> None:
        """Create an object, or update it if the same owner has it already.

        Parameters
        ----------
        body
            The whole object; its first ownerReference is its controller. Secrets, Jobs and Pods that exist
            are not updated.

        Raises
        ------
        NameConflict
            The name belongs to an object of another owner.
        Forbidden
            The queue has no right to create it in this namespace, or a policy or quota refuses it.
        ApiError
            It could not be created.
        """
        kind, meta = _KINDS[body["kind"]], body["metadata"]
        name, namespace, owner = meta["name"], meta["namespace"], meta["ownerReferences"][0]
        for _ in range(_TRIES):
            try:
                await self._api.create(kind, body, namespace)
            except AlreadyExists:
                if kind is SECRETS:
                    return
            except Forbidden as error:
                raise _explained(error, namespace) from None
            else:
                return
            try:
                existing = (await self._api.get(kind, name, namespace)).metadata
                holder = existing.controller
                if holder is None or holder.uid != owner["uid"]:
                    orphaned = holder is not None and (holder.kind, holder.name) == (
                        owner["kind"],
                        owner["name"],
                    )
                    raise NameConflict(kind, namespace, name, existing.uid, holder, orphaned=orphaned)
                if patch := _update(body, existing.resource_version):
                    await self._api.patch(kind, name, patch, namespace=namespace, patch_type=PatchType.JSON)
            except (NotFound, Conflict):
                continue  # it was deleted, or changed, in between
            return
        raise Conflict(409, "Conflict", f"{kind.describe(name, namespace)} keeps changing")

    async def still_exists(self, conflict: NameConflict) -> bool:
        """True if the object of another owner still exists."""
        try:
            existing = await self._api.get(conflict.kind, conflict.name, conflict.namespace)
        except NotFound:
            return False
        return bool(existing.metadata.uid == conflict.uid)

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        """Delete an object, unless another one has its name now."""
        with contextlib.suppress(NotFound, Conflict):
            await self._api.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)


def _explained(error: Forbidden, namespace: str) -> Forbidden:
    """Return the error with a remedy if it is RBAC that refuses:
    MiniClusters are served in chosen namespaces only.
    """
    if "cannot create resource" not in error.message:
        return error
    remedy = f"an administrator adds {namespace} to the chart's value miniclusters.namespaces"
    return Forbidden(
        error.status,
        error.reason,
        f"the queue may not create what a Flux cluster needs here: {remedy} ({error.message})",
    )


def _update(body: Json, resource_version: str) -> list[Json]:
    """Return a JSON Patch for the parts of an existing object that may change."""
    match body["kind"]:
        case "ConfigMap":
            parts = {"/data": body["data"]}
        case "Service":
            parts = {f"/spec/{key}": value for key, value in {"ports": [], **body["spec"]}.items()}
        case "NetworkPolicy":
            parts = {"/spec": body["spec"]}
        case _:
            return []
    guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
    return [guard, *({"op": "add", "path": path, "value": value} for path, value in parts.items())]
