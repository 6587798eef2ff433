"""The certificate being served, replaced while the server runs.

A Secret is renewed under a running pod, and a server that read it once would serve the old pair until it ended. So the folder is looked
at every few seconds: polled, because the kubelet swaps a symbolic link above the files and that is not an event on them. A pair that
changed is read once, checked, tried in a context nobody uses, and only then loaded into the live one, all from the same bytes: whatever
happens to the files meanwhile, the live context never holds half a pair. New handshakes see the new pair; open connections go on. A bad
pair is said to be bad, once, and the one before keeps serving.

Before the first pair arrives the server runs on a makeshift one that it signs itself and no API server trusts. That is enough for the
kubelet, which does not verify: the probes answer, and readiness says what is missing instead of a connection being refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog
from cryptography import x509

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import Fingerprint, InvalidPair, MissingPair, check_pair, fingerprint, read_pair
from fluxqueue.webhook.metrics import Metrics
from fluxqueue.webhook.readiness import Readiness

__all__ = ["ServedCertificate"]

log = structlog.get_logger(__name__)

_MAKESHIFT_LIFETIME = dt.timedelta(days=3_650)


class ServedCertificate:
    """A live TLS context that follows a folder.

    Parameters
    ----------
    directory
        Where ``tls.crt`` and ``tls.key`` stand, or will.
    readiness
        Told what is served, or missing.
    metrics
        Told of reloads and the end of the certificate.
    clock
        The time, with a zone.
    """

    def __init__(self, directory: Path, readiness: Readiness, metrics: Metrics, clock: Callable[[], dt.datetime]) -> None:
        self._directory = directory
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock
        self._seen: Fingerprint | None = None
        self._said: str | None = None
        self.context = _context()
        _load(self.context, _makeshift(clock()))

    async def follow(self, every_s: float) -> None:
        """Look at the folder until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(every_s)

    def look(self) -> None:
        """Load the pair if it is another than the one being served."""
        found = fingerprint(self._directory)
        if found is not None and found == self._seen:
            return
        try:
            pair = read_pair(self._directory)
            _load(_context(), pair)
            certificate = check_pair(pair)
        except MissingPair as missing:
            self._refuse(f"waiting for the certificate: {missing}", None)
        except (InvalidPair, ssl.SSLError) as problem:
            self._refuse(f"the certificate cannot be used: {problem}", found)
        else:
            _load(self.context, pair)
            self._seen, self._said = found, None
            ends = certificate.not_valid_after_utc
            self._readiness.certificate_ends = ends
            self._readiness.waiting_for = None
            self._metrics.certificate(ends.timestamp())
            log.info("certificate loaded", directory=str(self._directory), ends=ends.isoformat(), serial=_serial_of(certificate))

    def _refuse(self, why: str, found: Fingerprint | None) -> None:
        serving = self._readiness.certificate_ends
        if serving is None:
            self._readiness.waiting_for = why
        if why == self._said:
            return
        self._said = why
        if found is not None:
            self._metrics.certificate(None)
        log.warning(why, directory=str(self._directory), still_serving=serving.isoformat() if serving else None)


def _serial_of(certificate: x509.Certificate) -> str:
    """In hexadecimal bytes, as OpenSSL prints it."""
    number = certificate.serial_number
    return number.to_bytes((number.bit_length() + 7) // 8).hex().upper()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _makeshift(now: dt.datetime) -> Pair:
    authority = make_authority("fluxqueue webhook without a certificate", now, _MAKESHIFT_LIFETIME)
    return issue_leaf(authority, ServingNames(dns=("localhost",)), now, _MAKESHIFT_LIFETIME)


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    with _in_memory(pair.certificate) as certificate, _in_memory(pair.key) as key:
        context.load_cert_chain(certificate, key)


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path to these bytes that never touches a disk: OpenSSL only reads files, and a pod's may all be read-only."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
