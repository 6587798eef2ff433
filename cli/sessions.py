"""What every command of the plugin starts with:
the cluster that the command line names, its namespace, and the time.
"""

from __future__ import annotations

import argparse
from datetime import datetime

from fluxqueue.kube.kubeconfig import Connection, connection

__all__ = ["connection_of", "namespace_of", "now"]


def connection_of(arguments: argparse.Namespace) -> Connection:
    """Return address and credentials of the cluster that the command line names.

    Raises
    ------
    InvalidKubeconfig
        There is no usable configuration.
    """
    return connection(getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None))


def namespace_of(arguments: argparse.Namespace, chosen: Connection) -> str:
    """Return the namespace of the command line, or that of the context."""
    return str(getattr(arguments, "namespace", None) or chosen.namespace)


def now() -> datetime:
    """Return the present time, in the zone of this machine."""
    return datetime.now().astimezone()
