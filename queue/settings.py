"""What the command line of the queue service says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fluxqueue.queue.admin.server import AdminAddress
from fluxqueue.queue.certificates import WebhookNames
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.traces import TraceSender

__all__ = ["ServiceSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Settings of one replica.

    Attributes
    ----------
    database_url
        Postgres, as libpq reads it; holds a password, so it is never logged.
    direct_url
        Postgres itself where `database_url` is a pooler with sessions for one transaction; empty, where it is
        not.
    fluxion
        ``host:port`` of the matcher.
    config
        Content of the configuration file.
    namespace
        The release namespace.
    lease
        Name of the Lease in it whose holder leads.
    host, health_port
        Where liveness and readiness are served.
    admin
        Where metrics, status and the doctor are served.
    webhook
        Where the webhook's certificate is kept; None where cert-manager keeps it.
    kubeconfig
        Explicit kubeconfig; None: the environment's, else in-cluster.
    traces
        Sends traces; None where no collector is named.
    """

    database_url: str
    fluxion: str
    config: QueueConfig
    namespace: str
    lease: str
    host: str
    health_port: int
    admin: AdminAddress
    direct_url: str = ""
    webhook: WebhookNames | None = None
    kubeconfig: Path | None = None
    traces: TraceSender | None = None

    @property
    def session_url(self) -> str:
        """Postgres for what needs a session of its own: migrations, and the control tasks, which listen."""
        return self.direct_url or self.database_url

    @property
    def scheduler_lease(self) -> tuple[str, str] | None:
        """Namespace and name of the Lease of our own scheduler, which the chart derives from ours;
        None where it is not installed.
        """
        if self.config.scheduler is None:
            return None
        return self.namespace, f"{self.lease.removesuffix('-queue')}-scheduler"
