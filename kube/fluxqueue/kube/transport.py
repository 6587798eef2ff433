"""Calls to the API server (skeleton: signatures are final, bodies follow)."""

from __future__ import annotations

import builtins
import enum
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from fluxqueue.api.names import FIELD_MANAGER
from fluxqueue.kube.kinds import Kind, T

__all__ = ["Api", "Call", "Page", "PatchType", "Propagation"]


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


@dataclass(frozen=True)
class Call:
    """One HTTP request, for metrics: status 0 is no answer."""

    verb: str
    kind: str
    status: int
    seconds: float


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    resource_version: str
    continue_token: str


class Api:
    """The API server."""

    calls: Counter[tuple[str, str]]
    on_call: Callable[[Call], None] | None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        user_agent: str = "fluxqueue/queue",
        *,
        timeout_s: float = 30.0,
        max_in_flight: int = 32,
    ) -> AsyncIterator[Api]:
        """Open a connection pool; explicit kubeconfig, then $KUBECONFIG, then ~/.kube/config, then in-cluster."""
        raise NotImplementedError
        yield

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """Read one object."""
        raise NotImplementedError

    async def list(
        self, kind: Kind[T], namespace: str | None = None, *, label_selector: str | None = None, field_selector: str | None = None
    ) -> list[T]:
        """Read all objects of a kind."""
        raise NotImplementedError

    async def create(self, kind: Kind[T], body: dict[str, Any], namespace: str | None = None) -> T:
        """Create an object."""
        raise NotImplementedError

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
        """Change an object."""
        raise NotImplementedError

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
        """Delete an object."""
        raise NotImplementedError

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
        """Any other call."""
        raise NotImplementedError

    async def version(self) -> str:
        """The server's version, for example ``v1.36.3``."""
        raise NotImplementedError
