"""Typed calls to the API server.

Other requests, and what all calls share, are in :mod:`fluxqueue.kube.api_connection`. The models of the
``kubernetes`` package are not used: to decode directly into partial structs takes a hundredth of the time,
and the bodies of requests are small dictionaries.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from fluxqueue.api.names import FIELD_MANAGER
from fluxqueue.kube.api_connection import ApiConnection
from fluxqueue.kube.decoding import Page, decode, decode_page_in_turns
from fluxqueue.kube.errors import TooLong, Undecodable, failure_in
from fluxqueue.kube.kinds import PODS, Kind, T
from fluxqueue.kube.wire import CompletedCall, Request

__all__ = ["Api", "CompletedCall", "Page", "PatchType"]

PAGE_LIMIT: Final = 500
"""Objects per page, as client-go asks for."""
PAGE_BYTES: Final = 32 * 2**20
"""A page of the largest objects that the API server stores has a gigabyte and more.
One that is longer than this is asked for in parts."""
_PART: Final = 8
_SHORT: Final = 4
"""The page behind one that had less than this part of the bytes has twice the objects.
A few long ones must not slow down the whole list: the server forgets its version after some minutes."""


class PatchType(enum.StrEnum):
    """The type of a patch body. STRATEGIC is for built-in kinds only; custom resources refuse it with 415."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Api(ApiConnection):
    """A client of one API server; created by :meth:`connect`."""

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """Read one object."""
        action = f"get {kind.describe(name, namespace)}"
        data = await self._wire.call(Request("get", kind.plural, action, "GET", kind.path(namespace, name)))
        return decode(data, kind.type, action)

    async def list(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> list[T]:
        """Read all objects of a kind at one version, page by page.

        Raises
        ------
        Expired
            The version expired before the last page was read.
        Undecodable
            An object does not fit its struct.
        """
        items: builtins.list[T] = []
        token: str | None = None
        while token != "":
            page = await self.page(
                kind,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                continue_token=token or "",
            )
            if page.undecodable:
                raise Undecodable(
                    f"list {kind.describe(None, namespace)}", "; ".join(page.undecodable.values())
                )
            items += page.items
            token = page.continue_token
        return items

    async def page(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE_LIMIT,
        continue_token: str = "",
        most_bytes: int = PAGE_BYTES,
    ) -> Page[T]:
        """Read one page of a list, of fewer objects if they have more than ``most_bytes``."""
        query = _selection(label_selector, field_selector)
        if continue_token:
            query["continue"] = continue_token
        action = f"list {kind.describe(None, namespace)}"
        while True:
            query["limit"] = str(limit)
            most = most_bytes if limit > 1 else 0
            request = Request(
                "list", kind.plural, action, "GET", kind.path(namespace), dict(query), most_bytes=most
            )
            try:
                data = await self._wire.call(request)
            except TooLong:
                limit = max(limit // _PART, 1)
                continue
            grown = min(2 * limit, max(limit, PAGE_LIMIT)) if _SHORT * len(data) < most_bytes else limit
            return replace(await decode_page_in_turns(data, kind.type, action), limit=grown)

    async def create(
        self,
        kind: Kind[T],
        body: dict[str, Any],
        namespace: str | None = None,
        *,
        strict: bool = False,
        dry_run: bool = False,
        field_manager: str = FIELD_MANAGER,
        warned: Callable[[str], object] | None = None,
    ) -> T:
        """Create an object; ``apiVersion`` and ``kind`` are added if the body lacks them.

        Parameters
        ----------
        kind, body, namespace
            What is created, and where.
        strict
            Have the server refuse fields that the kind does not have, instead of dropping them.
        dry_run
            Create nothing, and return what would be created, after admission.
        field_manager
            By whose name the fields are managed.
        warned
            Gets each warning of the server.
        """
        meta = body.get("metadata", {})
        namespace = namespace or (meta.get("namespace") if kind.namespaced else None)
        if kind.namespaced and not namespace:
            raise ValueError(f"create {kind.kind}: in which namespace?")
        action = f"create {kind.describe(meta.get('name') or meta.get('generateName', '') + '*', namespace)}"
        payload = orjson.dumps({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        query = {
            "fieldManager": field_manager,
            **({"fieldValidation": "Strict"} if strict else {}),
            **({"dryRun": "All"} if dry_run else {}),
        }
        request = Request(
            "create", kind.plural, action, "POST", kind.path(namespace), query, payload, warned=warned
        )
        return decode(await self._wire.call(request), kind.type, action)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: dict[str, Any] | builtins.list[dict[str, Any]],
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> T:
        """Patch an object.

        Parameters
        ----------
        kind, name, namespace
            The object.
        body
            The patch; for JSON, a list of operations. If it has ``metadata.uid`` or
            ``metadata.resourceVersion``, it fails with :class:`Conflict` if the object is another one or has
            changed.
        patch_type
            See :class:`PatchType`.
        subresource
            For example ``status``.
        field_manager
            Name under which the server records the changed fields.
        """
        query = {"fieldManager": field_manager}
        part = f"{subresource} of " if subresource else ""
        action = f"patch {part}{kind.describe(name, namespace)}"
        path = kind.path(namespace, name, subresource)
        label = f"{kind.plural}/{subresource}" if subresource else kind.plural
        data = await self._wire.call(
            Request("patch", label, action, "PATCH", path, query, orjson.dumps(body), patch_type.value)
        )
        return decode(data, kind.type, action)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object, and in the background the objects that it owns.

        Parameters
        ----------
        uid, resource_version
            Preconditions; if the object differs, :class:`Conflict` is raised.
        """
        options: dict[str, Any] = {"propagationPolicy": "Background"}  # else the pods of Jobs are orphaned
        if preconditions := {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}:
            options["preconditions"] = preconditions
        action = f"delete {kind.describe(name, namespace)}"
        path = kind.path(namespace, name)
        await self._wire.call(
            Request("delete", kind.plural, action, "DELETE", path, None, orjson.dumps(options))
        )

    async def bind(
        self,
        name: str,
        namespace: str,
        node: str,
        *,
        uid: str,
        resource_version: str,
        timeout_s: float | None = None,
    ) -> None:
        """Bind a pod to a node, if it still has this uid and version.

        The request is not retried here: the caller binds many pods and must see each refusal. With these
        preconditions it may repeat the call safely.

        Raises
        ------
        Conflict
            The pod is another one, has changed, is gated, is being deleted or is bound.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": resource_version,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        action = f"bind {PODS.describe(name, namespace)} to {node}"
        await self._post(name, namespace, "binding", action, body, timeout_s)

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """Evict a pod, if it is still the one with this uid: it is deleted with its own grace period, unless
        a budget forbids that.

        The request is not retried here, so that the caller sees each refusal.

        Raises
        ------
        TooManyRequests
            A PodDisruptionBudget forbids it at present.
        ServerError
            More than one budget selects the pod. The server says that in a response with the code 201.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        action = f"evict {PODS.describe(name, namespace)}"
        answer = await self._post(name, namespace, "eviction", action, body)
        if (failure := failure_in(answer, action=action)) is not None:
            raise failure

    async def _post(
        self, name: str, namespace: str, part: str, action: str, body: object, timeout_s: float | None = None
    ) -> bytes:
        """Create a part of a pod, with one request."""
        path, query = PODS.path(namespace, name, part), {"fieldManager": FIELD_MANAGER}
        request = Request("create", f"pods/{part}", action, "POST", path, query, orjson.dumps(body))
        return await self._wire.call(request, timeout_s, tries=1)

    def watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_s: int,
        idle_s: float,
    ) -> AsyncGenerator[builtins.list[bytes], None]:
        """Watch a kind; yields lists of lines, each of which is a watch event in JSON.

        Parameters
        ----------
        kind, namespace, label_selector, field_selector
            The objects to watch.
        resource_version
            The version that is already known.
        timeout_s
            Seconds after which the server ends the stream.
        idle_s
            Seconds without a byte after which the watch counts as broken. Bookmarks arrive about every
            minute.

        Yields
        ------
        list of bytes
            First an empty list, when the server has accepted the watch; then events.

        Raises
        ------
        Expired, WatchTimeout, Unreachable, ApiError
            410 may also arrive as an event in the stream, which the caller handles.
        """
        query = _selection(label_selector, field_selector)
        query |= {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        action = f"watch {kind.describe(None, namespace)}"
        request = Request("watch", kind.plural, action, "GET", kind.path(namespace), query)
        return self._wire.stream(request, idle_s=idle_s)


def _selection(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    return {
        name: value
        for name, value in (("labelSelector", label_selector), ("fieldSelector", field_selector))
        if value
    }
