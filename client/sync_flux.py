"""Flux instances for code without ``async``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from fluxqueue.client.flux_instances import AsyncFlux, AsyncFluxTask, FluxNodes, FluxOptions, FluxTaskStatus
from fluxqueue.client.portals import Portal
from fluxqueue.client.waiting import Timeout

__all__ = ["Flux", "FluxTask"]


class Flux:
    """A Flux instance; see `AsyncFlux`. `Client.flux` makes one."""

    def __init__(self, portal: Portal, asynchronous: AsyncFlux) -> None:
        self.portal = portal
        self.asynchronous = asynchronous

    def submit(self, command: Sequence[str], **options: Unpack[FluxOptions]) -> FluxTask:
        """Submit a job; see `AsyncFlux.submit`."""
        return FluxTask(self.portal, self.portal.call(self.asynchronous.submit(command, **options)))

    def job(self, jobid: str) -> FluxTask:
        """Return the job with an id."""
        return FluxTask(self.portal, self.asynchronous.job(jobid))

    def jobs(self, *, active: bool = False, limit: int = 1000) -> list[FluxTaskStatus]:
        """Return the jobs, the newest first; only those that have not ended, if ``active``."""
        return self.portal.call(self.asynchronous.jobs(active=active, limit=limit))

    def nodes(self) -> list[FluxNodes]:
        """Return the nodes by state."""
        return self.portal.call(self.asynchronous.nodes())

    def ready(self, *, timeout: Timeout = None) -> None:
        """Wait until the instance answers commands."""
        self.portal.call(self.asynchronous.ready(timeout=timeout))


class FluxTask:
    """A job inside a Flux instance; see `AsyncFluxTask`."""

    def __init__(self, portal: Portal, asynchronous: AsyncFluxTask) -> None:
        self._portal = portal
        self.asynchronous = asynchronous

    def __repr__(self) -> str:
        return repr(self.asynchronous)

    @property
    def id(self) -> str:
        """Its id in Flux."""
        return self.asynchronous.id

    def status(self) -> FluxTaskStatus:
        """Return its status now."""
        return self._portal.call(self.asynchronous.status())

    def state(self) -> str:
        """Return its state now."""
        return self._portal.call(self.asynchronous.state())

    def wait(self, *, timeout: Timeout = None, check: bool = False) -> FluxTaskStatus:
        """Wait until it has ended; see `AsyncFluxTask.wait`."""
        return self._portal.call(self.asynchronous.wait(timeout=timeout, check=check))

    def cancel(self) -> None:
        """Cancel it, if it has not ended."""
        self._portal.call(self.asynchronous.cancel())

    def output(self, *, follow: bool = False) -> Iterator[str]:
        """Yield its output by lines; with ``follow`` until it ends."""
        yield from self._portal.iterate(self.asynchronous.output(follow=follow))
