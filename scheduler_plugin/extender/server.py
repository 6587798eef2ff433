"""The extender's HTTPS server. It runs on every replica of the scheduler, not only on the leader.

The certificate is reloaded while the server runs, like the webhook's. When the program ends, the server keeps
answering for some seconds and asks kube-scheduler to connect to another replica
(`fluxqueue.serving.guarded_server`).
"""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender.app import MAX_BODY_BYTES, ExtenderState, create_app
from fluxqueue.scheduler_plugin.extender.decisions import Decider
from fluxqueue.scheduler_plugin.extender.metrics import CertificateGauges
from fluxqueue.scheduler_plugin.extender.verbs import ExtenderVerbs
from fluxqueue.serving.clients import ClientAuthorities
from fluxqueue.serving.connections import ConnectionLimits
from fluxqueue.serving.guarded_server import CannotListen, GuardedServer, listen
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate

__all__ = ["CannotListen", "ExtenderServer", "ExtenderSettings"]

log: Final = structlog.get_logger(__name__)

_EVERY_S: Final = 0.02
_NODES_AT_ONCE: Final = 20
_LIMITS: Final = ConnectionLimits(body_bytes=MAX_BODY_BYTES, held_bytes=MAX_BODY_BYTES + 16 * 2**20)
"""Whole nodes of one request, and usual requests beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """Address, certificate and timing of the server.

    Attributes
    ----------
    host, port
        Address to listen on; port 0 chooses a free one, which is logged.
    certificate_directory
        Folder of ``tls.crt`` and ``tls.key``, which may appear later.
    client_ca
        File with the authorities of the clients' certificates. No other client is served: whoever reaches
        ``bind`` can have pods bound.
    drain_s
        Seconds for which the server keeps answering after the program was asked to end.
    look_s
        Seconds between two checks of the certificate.
    """

    host: str
    port: int
    certificate_directory: Path
    client_ca: Path
    drain_s: float = 5.0
    look_s: float = 2.0


class ExtenderServer:
    """The extender of one replica.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """

    def __init__(self, settings: ExtenderSettings) -> None:
        self._settings = settings
        self._readiness = Readiness("kube-scheduler")
        self._caches: SchedulerCaches | None = None
        self._certificate = ServedCertificate(
            settings.certificate_directory, self._readiness, CertificateGauges(), _now, server="extender"
        )
        self._clients = ClientAuthorities(self._certificate.context, settings.client_ca)
        self._check_files()
        self._listening = listen(settings.host, settings.port)

    def problem(self) -> str | None:
        """Return why the extender cannot answer now, or None."""
        if self._caches is None:
            return "the caches are being filled"
        return self._readiness.problem(_now()) or self._clients.waiting_for or self._caches.watches.problem

    async def serve(self, api: Api, caches: SchedulerCaches) -> None:
        """Serve until cancelled, and then for ``drain_s`` seconds.

        Parameters
        ----------
        api
            The client for Bindings; it may write on any replica.
        caches
            Synced caches.
        """
        decider = Decider(caches)
        state = ExtenderState(self.problem, lambda: self._readiness.draining)
        server = GuardedServer(
            create_app(ExtenderVerbs(api, caches, decider), state),
            self._listening,
            _LIMITS,
            context=self._certificate.context,
        )
        self._caches = caches
        settings = self._settings
        log.info("extender.listening", host=settings.host, port=server.port)
        followers = [
            asyncio.create_task(self._follow(), name="certificate"),
            asyncio.create_task(_precompute(decider), name="capacity"),
        ]
        serving = asyncio.create_task(server.serve(), name="extender")
        try:
            await asyncio.wait({serving, *followers}, return_when=asyncio.FIRST_COMPLETED)
            for task in (serving, *followers):
                if task.done():
                    await task
        except asyncio.CancelledError:
            self._readiness.draining = True
            log.info("extender.draining", seconds=settings.drain_s)
            await asyncio.wait({serving}, timeout=settings.drain_s)
            raise
        finally:
            server.should_exit = True
            for follower in followers:
                follower.cancel()
            await asyncio.gather(serving, *followers, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._settings.look_s)
            self._check_files()

    def _check_files(self) -> None:
        self._certificate.check()
        self._clients.check()


async def _precompute(decider: Decider) -> None:
    """Compute nodes with reserved capacity in advance, a few at a time."""
    while True:
        decider.precompute(_NODES_AT_ONCE)
        await asyncio.sleep(_EVERY_S)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
