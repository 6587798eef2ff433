"""Keeping a Store equal to what the API server has (skeleton: signatures are final, bodies follow)."""

from __future__ import annotations

import asyncio
from typing import Generic

from fluxqueue.kube.kinds import Kind, T
from fluxqueue.kube.store import Store
from fluxqueue.kube.transport import Api

__all__ = ["Reflector"]


class Reflector(Generic[T]):
    """List and watch one kind into a store."""

    synced: asyncio.Event
    last_error: Exception | None
    resource_version: str

    def __init__(
        self,
        api: Api,
        kind: Kind[T],
        store: Store[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """List and watch until cancelled."""
        raise NotImplementedError

    @property
    def healthy(self) -> bool:
        """Whether the store is filled and news would reach it."""
        raise NotImplementedError

    @property
    def age_s(self) -> float:
        """Seconds since the server was last heard (event, bookmark, list); infinity before the first time."""
        raise NotImplementedError
