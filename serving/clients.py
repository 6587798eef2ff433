"""Verification of client certificates, with a file of authorities that may change.

The file is checked every few seconds, like the server's own certificate. A handshake without a certificate of
one of these authorities fails. There is one difference: OpenSSL can only add to what a live context trusts,
so an authority that is removed from the file stays trusted until the server ends.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

__all__ = ["ClientAuthorities"]

log = structlog.get_logger(__name__)


class ClientAuthorities:
    """The authorities that have to sign the certificates of a server's clients.

    Parameters
    ----------
    context
        The live context of the server. From now on it accepts only clients with a certificate.
    file
        The authorities, PEM. The file may appear later, and until then no client is served.

    Attributes
    ----------
    waiting_for
        What is missing, as a sentence; None if nothing is.
    """

    def __init__(self, context: ssl.SSLContext, file: Path) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        self._context = context
        self._file = file
        self._seen = b""
        self.waiting_for: str | None = f"the authorities of clients have not been read yet from {file}"

    def check(self) -> None:
        """Add the authorities of the file if it has changed."""
        try:
            content = self._file.read_bytes()
            if content == self._seen:
                return
            self._context.load_verify_locations(cadata=content.decode("ascii"))
        except FileNotFoundError:
            self._refuse(f"waiting for the authorities of clients: {self._file} is not there")
        except OSError as error:  # ssl.SSLError is one
            why = "it holds no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
            self._refuse(f"the authorities of clients cannot be read from {self._file}: {why}")
        except ValueError:
            self._refuse(f"the authorities of clients cannot be read from {self._file}: it is not PEM")
        else:
            self._seen, self.waiting_for = content, None
            log.info("client_authorities.loaded", file=str(self._file))

    def _refuse(self, why: str) -> None:
        if self._seen:
            log.warning("client_authorities.refused", problem=why)
            return
        if why != self.waiting_for:
            log.warning("client_authorities.missing", problem=why)
        self.waiting_for = why
