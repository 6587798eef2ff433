"""The watches of one program: run together, filled together, with one health check."""

from __future__ import annotations

import asyncio
from typing import Any

from fluxqueue.kube.errors import WatchTimeout
from fluxqueue.kube.reflector import Reflector

__all__ = ["Watches"]


class Watches:
    """Reflectors that fill the caches of one program."""

    def __init__(self, *reflectors: Reflector[Any]) -> None:
        self._reflectors = reflectors

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Wait until every cache is filled."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    @property
    def problem(self) -> str | None:
        """Why changes of some kind do not arrive; None while all watches work.

        A watch of a kind whose objects never change may time out and be opened again from time to time. That
        alone is no problem.
        """
        errors = [each.last_error for each in self._reflectors if each.last_error is not None]
        if serious := [error for error in errors if not isinstance(error, WatchTimeout)]:
            return str(serious[0])
        stale = any(not reflector.healthy for reflector in self._reflectors)
        return "a watch receives nothing: changes in the cluster do not arrive" if stale else None
