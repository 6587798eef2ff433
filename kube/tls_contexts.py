"""TLS contexts of connections to an API server, from the certificates of a kubeconfig or a ServiceAccount in
memory.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from fluxqueue.kube.kubeconfig import Connection
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig

__all__ = ["load_pair", "tls_context"]


def tls_context(connection: Connection) -> ssl.SSLContext:
    """Return the TLS context of connections to the server.

    Raises
    ------
    InvalidKubeconfig
        The authority is no certificate, or certificate and key of the user do not belong together.
    """
    try:
        context = ssl.create_default_context(cadata=connection.ca_pem.decode() if connection.ca_pem else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise InvalidKubeconfig("certificate-authority holds no PEM certificate") from None
    # Strict mode (default since Python 3.13) refuses CA certificates without key identifiers, which Go and so
    # every cluster accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load_pair(context, connection)
    return context


def load_pair(context: ssl.SSLContext, connection: Connection) -> None:
    """Load the client certificate and its key, if there are any, into a TLS context;
    new connections have them.
    """
    if not (connection.client_cert_pem and connection.client_key_pem):
        return
    # The ssl module reads key pairs only from files: a private one, which is deleted when the pair is loaded.
    with tempfile.TemporaryDirectory(prefix="fluxqueue-") as folder:
        pair = Path(folder) / "pair.pem"
        handle = os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(connection.client_key_pem.rstrip() + b"\n" + connection.client_cert_pem)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise InvalidKubeconfig(
                f"tls: the client certificate and key do not form a pair: {error.reason}"
            ) from None
