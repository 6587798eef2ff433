"""A TLS call of a server to itself, as its clients call it.

A pair can be valid and of no use: its authority is not the one that clients trust, or its names are not those
by which they call. Every admission would fail, and only the API server would know why. So the server is ready
only once a connection to its own address, by its own name, is verified with the authority that came with the
pair (``ca.crt`` of the Secret).

Only a failed verification ends the readiness of a server that was ready: a call that fails because the server
is busy says nothing about its certificate. Without ``ca.crt`` or without a name nothing is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate

__all__ = ["AUTHORITY_FILE", "SelfCall"]

log = structlog.get_logger(__name__)

AUTHORITY_FILE = "ca.crt"
_TIMEOUT_S = 5.0
_AGAIN_S = 30.0


class SelfCall:
    """Calls a server by its own name.

    Parameters
    ----------
    directory
        Folder of the pair, and of ``ca.crt``.
    name
        DNS name or IP address by which clients call; empty calls nothing.
    address
        Host and port to connect to.
    certificate
        What the server serves.
    readiness
        Updated with the result.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        address: tuple[str, int],
        certificate: ServedCertificate,
        readiness: Readiness,
        clock: Callable[[], float],
    ) -> None:
        self._authority = directory / AUTHORITY_FILE
        self._name = name
        self._address = address
        self._certificate = certificate
        self._readiness = readiness
        self._clock = clock
        self._verified: object = None
        self._due = 0.0

    async def check(self) -> None:
        """Call if the pair or the authority has changed, or the last call was a while ago."""
        pair = self._certificate.served_files
        try:
            authority = self._authority.read_bytes()
        except OSError:
            authority = b""
        if not (self._name and authority and pair is not None):
            self._readiness.refused_by_itself = None
            return
        # a pair that was refused: what is served did not come with this authority
        if not self._certificate.is_current():
            return
        if (pair, authority) == self._verified and self._clock() < self._due:
            return
        try:
            context = ssl.create_default_context(cadata=authority.decode("ascii"))
        except (ssl.SSLError, ValueError):
            self._refuse(f"{self._authority} holds no PEM certificate")
            return
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._call(context)
        except ssl.SSLCertVerificationError as error:
            self._refuse(error.verify_message)
        except (OSError, TimeoutError) as error:
            if (pair, authority) != self._verified:
                self._refuse(f"no connection: {str(error) or type(error).__name__}")
        else:
            self._verified, self._due = (pair, authority), self._clock() + _AGAIN_S
            self._readiness.refused_by_itself = None

    async def _call(self, context: ssl.SSLContext) -> None:
        host, port = self._address
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=self._name)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _refuse(self, why: str) -> None:
        sentence = (
            f"a call to itself as {self._name} fails: {why}; "
            "check the names and the authority of the certificate"
        )
        if sentence != self._readiness.refused_by_itself:
            log.warning("certificate.unusable", problem=sentence)
        self._readiness.refused_by_itself = sentence
        self._verified = None
