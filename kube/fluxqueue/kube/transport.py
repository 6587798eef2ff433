"""Calls to the API server: paths and bytes, typed at both ends.

Configuration, authentication and TLS come from the ``kubernetes`` package (:mod:`fluxqueue.kube.credentials`). Its models do not:
decoding straight into partial structs costs a hundredth of them, and what we send are small dictionaries. Deadlines and what is
tried again are in :mod:`fluxqueue.kube.wire`.
"""

from __future__ import annotations

import builtins
import enum
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from fluxqueue.api.names import FIELD_MANAGER
from fluxqueue.kube.credentials import Credentials
from fluxqueue.kube.decoding import Page, Version, decode, decode_page
from fluxqueue.kube.errors import Undecodable
from fluxqueue.kube.kinds import Kind, T
from fluxqueue.kube.wire import TIMEOUT_S, Call, Request, Wire

__all__ = ["Api", "Call", "Page", "PatchType", "Propagation"]

PAGE_LIMIT: Final = 500
"""Objects per page, as client-go asks for."""


class PatchType(enum.StrEnum):
    """How a patch body is read. STRATEGIC is for built-in kinds only: custom resources refuse it with 415."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.StrEnum):
    """What becomes of the objects that a deleted one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Api:
    """One API server; :meth:`connect` opens it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        user_agent: str = "fluxqueue/queue",
        *,
        timeout_s: float = TIMEOUT_S,
        max_in_flight: int = 32,
    ) -> AsyncIterator[Api]:
        """Open a connection pool; the first call connects.

        Parameters
        ----------
        kubeconfig, context
            See :meth:`Credentials.load`.
        user_agent
            Shows in audit logs and flow control.
        timeout_s
            Deadline of each call, unless it names its own.
        max_in_flight
            Calls at once; more wait. Watches do not count.

        Raises
        ------
        NoConfiguration
            When nothing says where the API server is.
        """
        credentials = await Credentials.load(kubeconfig, context)
        async with Wire.open(credentials, user_agent=user_agent, timeout_s=timeout_s, max_in_flight=max_in_flight) as wire:
            yield cls(wire)

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """HTTP requests sent so far by (verb, plural), repeated ones included; verbs as RBAC calls them."""
        return self._wire.calls

    @property
    def on_call(self) -> Callable[[Call], None] | None:
        """Told of each request when it is over; for metrics, so it must be quick and must not raise."""
        return self._wire.on_call

    @on_call.setter
    def on_call(self, hook: Callable[[Call], None] | None) -> None:
        self._wire.on_call = hook

    @property
    def may_write(self) -> Callable[[], bool] | None:
        """Asked before each write is sent; where it says no, :class:`~fluxqueue.kube.errors.NotLeading` is raised instead."""
        return self._wire.may_write

    @may_write.setter
    def may_write(self, allowed: Callable[[], bool] | None) -> None:
        self._wire.may_write = allowed

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """Read one object.

        Raises
        ------
        NotFound, ApiError
            See :mod:`fluxqueue.kube.errors`.
        """
        doing = f"get {kind.describe(name, namespace)}"
        data = await self._wire.call(Request("get", kind.plural, doing, "GET", kind.path(namespace, name)))
        return decode(data, kind.type, doing)

    async def list(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> list[T]:
        """Read all objects of a kind, page by page, all of one moment.

        Raises
        ------
        Expired
            When pages were collected so slowly that the server forgot the moment.
        Undecodable
            When an object does not fit its struct.
        """
        items: builtins.list[T] = []
        token: str | None = None
        while token != "":
            page = await self.page(
                kind, namespace, label_selector=label_selector, field_selector=field_selector, continue_token=token or ""
            )
            if page.undecodable:
                raise Undecodable(f"list {kind.describe(None, namespace)}", "; ".join(page.undecodable.values()))
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
    ) -> Page[T]:
        """Read one page of a list; ``limit`` 0 asks for everything at once."""
        query = _selection(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        if continue_token:
            query["continue"] = continue_token
        doing = f"list {kind.describe(None, namespace)}"
        data = await self._wire.call(Request("list", kind.plural, doing, "GET", kind.path(namespace), query))
        return decode_page(data, kind.type, doing)

    async def create(self, kind: Kind[T], body: dict[str, Any], namespace: str | None = None) -> T:
        """Create an object; ``apiVersion`` and ``kind`` are filled in where the body lacks them.

        Raises
        ------
        AlreadyExists, Invalid, Forbidden, ApiError
            See :mod:`fluxqueue.kube.errors`.
        """
        meta = body.get("metadata", {})
        where = namespace or (meta.get("namespace") if kind.namespaced else None)
        if kind.namespaced and not where:
            raise ValueError(f"create {kind.kind}: in which namespace?")
        doing = f"create {kind.describe(meta.get('name') or meta.get('generateName', '') + '*', where)}"
        payload = orjson.dumps({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        query = {"fieldManager": FIELD_MANAGER}
        data = await self._wire.call(Request("create", kind.plural, doing, "POST", kind.path(where), query, payload))
        return decode(data, kind.type, doing)

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
        force: bool = False,
    ) -> T:
        """Change an object.

        Parameters
        ----------
        kind, name, namespace
            Which one.
        body
            The patch. ``metadata.uid`` and ``metadata.resourceVersion`` in it make it fail with :class:`Conflict` when the object is
            another one or has changed. For JSON a list of operations; for APPLY the whole of what we own.
        patch_type
            See :class:`PatchType`.
        subresource
            For example ``status``.
        field_manager
            Under which name the server files the fields.
        force
            For APPLY only: take fields that others own.

        Returns
        -------
        T
            The object afterwards.

        Raises
        ------
        Conflict, NotFound, Invalid, Forbidden, ApiError
            See :mod:`fluxqueue.kube.errors`.
        """
        query = {"fieldManager": field_manager}
        if patch_type is PatchType.APPLY:
            query["force"] = "true" if force else "false"
            assert isinstance(body, dict), "server-side apply takes an object"
            metadata = {"name": name, **body.get("metadata", {})}  # the server wants it in the body too
            body = {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": metadata}
        part = f"{subresource} of " if subresource else ""
        doing = f"patch {part}{kind.describe(name, namespace)}"
        path = kind.path(namespace, name, subresource)
        label = f"{kind.plural}/{subresource}" if subresource else kind.plural
        data = await self._wire.call(Request("patch", label, doing, "PATCH", path, query, orjson.dumps(body), patch_type.value))
        return decode(data, kind.type, doing)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object, and in the background what it owns.

        Parameters
        ----------
        kind, name, namespace
            Which one.
        propagation
            Always sent: without it the server orphans the pods of Jobs.
        uid, resource_version
            Only if it is still that object, in that state; else :class:`Conflict`.

        Raises
        ------
        NotFound, Conflict, ApiError
            See :mod:`fluxqueue.kube.errors`.
        """
        options: dict[str, Any] = {"propagationPolicy": propagation.value}
        if preconditions := {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}:
            options["preconditions"] = preconditions
        doing = f"delete {kind.describe(name, namespace)}"
        path = kind.path(namespace, name)
        await self._wire.call(Request("delete", kind.plural, doing, "DELETE", path, None, orjson.dumps(options)))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        """Any other call: subresources such as ``binding`` or ``eviction``, discovery, ``/readyz``.

        Parameters
        ----------
        method, path, query
            As they go on the wire.
        body
            Bytes as they are; anything else becomes JSON.
        content_type
            Of the body.
        timeout_s
            Deadline; None is the default of this Api.

        Returns
        -------
        bytes
            The answer's body.

        Raises
        ------
        ApiError
            See :mod:`fluxqueue.kube.errors`.
        """
        payload = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        verb = method.lower()
        request = Request(verb, "raw", f"{verb} {path}", method.upper(), path, query, payload, content_type)
        return await self._wire.call(request, timeout_s)

    async def version(self) -> str:
        """The server's version, for example ``v1.36.3``."""
        return decode(await self.request("GET", "/version"), Version, "get /version").git_version

    def watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_s: int,
        silence_s: float,
    ) -> AsyncGenerator[builtins.list[bytes], None]:
        """Follow changes: pieces of the stream as whole lines, each a watch event in JSON.

        Parameters
        ----------
        kind, namespace, label_selector, field_selector
            What to follow.
        resource_version
            The state already known.
        timeout_s
            After how many seconds the server is to end the stream.
        silence_s
            How long it may say nothing. Bookmarks come about every minute, so silence means a connection that only looks alive.

        Yields
        ------
        list of bytes
            First an empty list, when the server has accepted the watch; then events.

        Raises
        ------
        Expired, Silent, Unreachable, ApiError
            :class:`Expired` also comes as an event inside the stream, which is the caller's to see.
        """
        query = _selection(label_selector, field_selector)
        query |= {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version, "timeoutSeconds": str(timeout_s)}
        request = Request("watch", kind.plural, f"watch {kind.describe(None, namespace)}", "GET", kind.path(namespace), query)
        return self._wire.stream(request, silence_s=silence_s)


def _selection(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in query.items() if value}
