"""Readiness of the REST service: whether a command of Flux that every route needs has worked just now.

`flux ping` would not be enough. It is a C program, and the commands of the routes need the Python bindings of
Flux, which may not load in this container. Such a command takes a part of a second and the path has no token,
so one result serves all requests of two seconds, and only one command runs at a time.
"""

from __future__ import annotations

import asyncio
import time

from fluxqueue.rest.commands import Flux, FluxFailed, FluxMissing

__all__ = ["FluxReadiness"]

_VALID_S = 2.0


class FluxReadiness:
    """The readiness of one instance.

    Parameters
    ----------
    flux
        The instance.
    valid_s
        How long a result counts, in seconds.
    """

    def __init__(self, flux: Flux, valid_s: float = _VALID_S) -> None:
        self._flux = flux
        self._valid_s = valid_s
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._problem = ""

    async def problem(self) -> str:
        """Return in a sentence why the instance cannot be used; empty if it can."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= self._valid_s:
                self._problem = await self._ask()
                self._asked_at = time.monotonic()
            return self._problem

    async def _ask(self) -> str:
        try:
            await self._flux.jobs(limit=1)
        except (FluxFailed, FluxMissing) as error:
            return f"the instance does not respond yet: {error}"
        return ""
