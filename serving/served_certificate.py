"""The served certificate, replaced while the server runs.

A Secret is renewed under a running pod, and a server that reads it once would serve the old pair until it
ends. So the folder is checked every few seconds. It is polled, because the kubelet replaces a symbolic link
above the files, which is no event on the files. A changed pair is read once, checked, loaded into an unused
context as a test, and then loaded into the live context, always from the same bytes. So the live context
never holds half a pair, whatever happens to the files meanwhile. New handshakes use the new pair, and open
connections continue. An invalid pair is reported once, and the former one stays in use.

Until the first pair arrives, the server uses a self-signed placeholder that no client trusts. That is enough
for the kubelet, which does not verify: the probes are answered, and readiness reports what is missing,
instead of a refused connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import structlog
from cryptography import x509

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import Fingerprint, InvalidPair, MissingPair, check_pair, fingerprint, read_pair
from fluxqueue.serving.readiness import Readiness

__all__ = ["CertificateMetrics", "ServedCertificate"]

log = structlog.get_logger(__name__)

_PLACEHOLDER_LIFETIME = dt.timedelta(days=3_650)


class CertificateMetrics(Protocol):
    """Counts the pairs that were found."""

    def certificate(self, ends: float | None) -> None:
        """Record a pair that was found on disk: its end in seconds since the epoch,
        or None if it was refused.
        """


class ServedCertificate:
    """A live TLS context with the current pair of a folder.

    Parameters
    ----------
    directory
        Folder of ``tls.crt`` and ``tls.key``, which may appear later.
    readiness
        Updated with what is served or missing.
    metrics
        Updated with reloads and the expiry of the certificate.
    clock
        The time, with a zone.
    server
        Name of the server, for the placeholder.
    """

    def __init__(
        self,
        directory: Path,
        readiness: Readiness,
        metrics: CertificateMetrics,
        clock: Callable[[], dt.datetime],
        server: str = "webhook",
    ) -> None:
        self._directory = directory
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock
        self._seen: Fingerprint | None = None
        self._last_problem: str | None = None
        self.context = _context()
        _load(self.context, _placeholder(server, clock()))

    @property
    def served_files(self) -> Fingerprint | None:
        """The identity of the files that are served; None while only the placeholder is."""
        return self._seen

    def is_current(self) -> bool:
        """Return True if what is served is what the folder holds now."""
        return self._seen is not None and self._seen == fingerprint(self._directory)

    async def follow(self, every_s: float) -> None:
        """Check the folder every ``every_s`` seconds until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(every_s)

    def check(self) -> None:
        """Load the pair if it is not the one being served."""
        current = fingerprint(self._directory)
        if current is not None and current == self._seen:
            return
        try:
            pair = read_pair(self._directory)
            _load(_context(), pair)
            certificate = check_pair(pair)
        except MissingPair as missing:
            self._refuse(f"waiting for the certificate: {missing}", None)
        except (InvalidPair, ssl.SSLError) as problem:
            self._refuse(f"the certificate cannot be used: {problem}", current)
        else:
            _load(self.context, pair)
            self._seen, self._last_problem = current, None
            ends = certificate.not_valid_after_utc
            self._readiness.certificate_ends = ends
            self._readiness.waiting_for = None
            self._metrics.certificate(ends.timestamp())
            log.info(
                "certificate.loaded",
                directory=str(self._directory),
                ends=ends.isoformat(),
                serial=_serial_of(certificate),
            )

    def _refuse(self, why: str, found: Fingerprint | None) -> None:
        serving = self._readiness.certificate_ends
        if serving is None:
            self._readiness.waiting_for = why
        if why == self._last_problem:
            return
        self._last_problem = why
        if found is not None:
            self._metrics.certificate(None)
        still_serving = serving.isoformat() if serving else None
        log.warning(
            "certificate.refused" if found is not None else "certificate.missing",
            problem=why,
            directory=str(self._directory),
            still_serving=still_serving,
        )


def _serial_of(certificate: x509.Certificate) -> str:
    """Return the serial number in hexadecimal bytes, as OpenSSL prints it."""
    number = certificate.serial_number
    return number.to_bytes((number.bit_length() + 7) // 8).hex().upper()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _placeholder(server: str, now: dt.datetime) -> Pair:
    authority = make_authority(f"fluxqueue {server} without a certificate", now, _PLACEHOLDER_LIFETIME)
    return issue_leaf(authority, ServingNames(dns=("localhost",)), now, _PLACEHOLDER_LIFETIME)


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    with _in_memory(pair.certificate) as certificate, _in_memory(pair.key) as key:
        context.load_cert_chain(certificate, key)


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path to these bytes that is not on a disk:
    OpenSSL reads only files, and those of a pod may all be read-only.
    """
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
