"""Which replica of a program leads and what it has done, from the endpoints of the replicas."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from fluxqueue.local.inprocess import RELEASE, InProcessCluster
from fluxqueue.local.operator_requests import write_queue_authority

__all__ = ["LifeCount", "asked", "leader", "matcher", "metrics", "queue_environment", "queues", "status"]


@dataclass(frozen=True)
class LifeCount:
    """A counter of one process of a program, from its metrics. A new process starts at zero."""

    pid: int | None
    number: float

    def went_on_since(self, before: LifeCount) -> bool:
        """True if the counter increased since then: once more in the same process,
        or at all in another one.
        """
        return self.number > (before.number if self.pid == before.pid else 0.0)


def metrics(cluster: InProcessCluster, name: str) -> bytes:
    """Return the metrics of a program; OSError or OperatorRefused if it does not answer."""
    port = cluster.programs[name].metrics_port
    assert port is not None, f"{name} serves no metrics"
    return cluster.operators.metrics(port)


def status(cluster: InProcessCluster, name: str) -> dict[str, Any]:
    """Return the response of ``/status``: ``ready``, ``role``,
    and the sentence of each condition that is ``missing``.
    """
    port = cluster.programs[name].metrics_port
    assert port is not None, f"{name} serves no status"
    return dict(cluster.operators.get(port, "/status", timeout_s=5))


def queue_environment(cluster: InProcessCluster, name: str = "queue") -> dict[str, str]:
    """Return the variables with which `kubectl fluxqueue` finds the queue of a local cluster,
    as ``fluxqueue local env`` prints them.
    """
    authority = write_queue_authority(cluster.control_plane.client, cluster.folder / "queue-ca.crt", RELEASE)
    url = f"https://127.0.0.1:{cluster.programs[name].metrics_port}"
    return {"FLUXQUEUE_QUEUE_URL": url, "FLUXQUEUE_QUEUE_CA": str(authority)}


def queues(cluster: InProcessCluster) -> list[str]:
    """Return the queue programs of a local cluster, the first replica first."""
    return [name for name in cluster.programs if name == "queue" or name.startswith("queue-")]


def asked(cluster: InProcessCluster, name: str) -> dict[str, Any]:
    """Return the response of ``/readyz``: ``ready``, ``role`` and ``missing``;
    without a response the program itself is missing.
    """
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{cluster.programs[name].port}/readyz", timeout=30
        ) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except OSError as error:
        return {"ready": False, "role": "", "missing": [f"queue ({error})"]}


def leader(cluster: InProcessCluster) -> str | None:
    """Return the leading queue; None if none leads, or if a paused former leader cannot be distinguished from
    the leader.
    """
    leading = [
        name
        for name in queues(cluster)
        if cluster.programs[name].process.running and asked(cluster, name)["role"] == "leader"
    ]
    return leading[0] if len(leading) == 1 else None


def matcher(cluster: InProcessCluster) -> str | None:
    """Return the matcher next to the leading queue; with a single queue, its own."""
    names = queues(cluster)
    leading = leader(cluster) if len(names) > 1 else names[0]
    return leading.replace("queue", "fluxion") if leading else None
