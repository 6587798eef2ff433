"""Kubeconfig files of the programs of a local cluster.

Certificates and tokens are embedded, so that a program needs only one file, which can be replaced atomically.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from fluxqueue.local.pki import KeyPair, write_private

__all__ = ["write_certificate_kubeconfig", "write_token_kubeconfig"]


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(path: Path, server: str, authority: Path, user: dict[str, str], namespace: str) -> Path:
    config = {  # JSON is YAML, and every client reads it
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "fluxqueue-local",
                "cluster": {"server": server, "certificate-authority-data": _encoded(authority)},
            }
        ],
        "users": [{"name": path.stem, "user": user}],
        "contexts": [
            {
                "name": "fluxqueue-local",
                "context": {"cluster": "fluxqueue-local", "user": path.stem, "namespace": namespace},
            }
        ],
        "current-context": "fluxqueue-local",
    }
    return write_private(path, json.dumps(config, indent=1).encode())


def write_certificate_kubeconfig(path: Path, server: str, authority: Path, identity: KeyPair) -> Path:
    """Write a kubeconfig with a client certificate; return ``path``."""
    user = {
        "client-certificate-data": _encoded(identity.certificate),
        "client-key-data": _encoded(identity.key),
    }
    return _write(path, server, authority, user, "default")


def write_token_kubeconfig(path: Path, server: str, authority: Path, token: str, namespace: str) -> Path:
    """Write a kubeconfig with a token and a default namespace; return ``path``."""
    return _write(path, server, authority, {"token": token}, namespace)
