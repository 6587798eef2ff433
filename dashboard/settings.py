"""What the command line says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fluxqueue.dashboard.people import ProxyHeaders

__all__ = ["DashboardSettings", "QueueAddress"]


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where the queue answers questions about its history.

    Attributes
    ----------
    url, ca
        Address of the port ``metrics`` of its Service, and a file with the authority of its certificate.
        Empty and None: history and doctor are not shown.
    release
        Name that the chart gives its objects, as in the accounts ``<release>-history`` and
        ``<release>-doctor``.
    namespace
        The release namespace.
    """

    url: str = ""
    ca: Path | None = None
    release: str = "fluxqueue"
    namespace: str = "fluxqueue-system"


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """Settings of the program.

    Attributes
    ----------
    host, port
        Where it listens, HTTPS.
    certificate_directory
        Folder of ``tls.crt`` and ``tls.key``, which may appear later.
    queue
        Where the queue is.
    levels
        Node labels from the top of the topology down.
    proxy
        How a proxy in front names people; None: it does not.
    impersonate
        Whether writes of people that a proxy names are sent by impersonation.
    kubeconfig
        Explicit kubeconfig. None: that of the environment, else in-cluster.
    health_port
        Port of liveness, plain HTTP; None if it is not served.
    """

    host: str
    port: int
    certificate_directory: Path
    queue: QueueAddress = QueueAddress()
    levels: tuple[str, ...] = ()
    proxy: ProxyHeaders | None = None
    impersonate: bool = False
    kubeconfig: Path | None = None
    health_port: int | None = None
