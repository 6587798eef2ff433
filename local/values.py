"""The Helm values of a local cluster: loopback ports, the webhook's address, an external database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluxqueue.local.fake_nodes import RACK_LABEL, ZONE_LABEL

__all__ = ["DATABASE_SECRET", "METRICS_READER", "PORTS", "cluster_values", "merged"]

DATABASE_SECRET = "fluxqueue-local-database"  # noqa: S105  (the name of a Secret)
METRICS_READER = "fluxqueue-system:fluxqueue-doctor"
"""Reads ``/metrics`` in a local cluster, in place of Prometheus' ServiceAccount."""
PORTS = (
    "webhook",
    "webhook-health",
    "queue",
    "queue-metrics",
    "fluxion",
    "fluxion-health",
    "scheduler",
    "scheduler-metrics",
    "extender",
    "dashboard",
    "dashboard-health",
)
"""The ports of a replica; see `cluster_values`."""


def cluster_values(ports: Mapping[str, int], scheduler: str) -> dict[str, Any]:
    """Return the values that override the chart's, for one replica of each program.

    Parameters
    ----------
    ports
        One for each of `PORTS`; ``queue`` and ``scheduler`` are for health.
    scheduler
        The default scheduler: ``stock``, or ``fluxion``, which enables the project's scheduler.
    """
    return {
        "postgres": {"enabled": False},
        "miniclusters": {"enabled": True, "namespaces": ["*"]},
        "rbac": {"metricsReadableBy": [METRICS_READER]},
        "defaultQueue": {"spec": {"maxPriority": 1000}},  # one person works here, who may order what waits
        "database": {"existingSecret": {"name": DATABASE_SECRET, "key": "url"}},
        "webhook": {
            "replicas": 1,
            "host": "127.0.0.1",
            "port": ports["webhook"],
            "healthPort": ports["webhook-health"],
            "clientUrl": f"https://127.0.0.1:{ports['webhook']}",
            "drainSeconds": 0,  # there are no endpoints from which it must be removed first
        },
        "queue": {
            "replicas": 1,
            "host": "127.0.0.1",
            "healthPort": ports["queue"],
            "metricsPort": ports["queue-metrics"],
            "config": {"zoneLabel": ZONE_LABEL, "rackLabel": RACK_LABEL},
        },
        "dashboard": {
            "host": "127.0.0.1",
            "port": ports["dashboard"],
            "healthPort": ports["dashboard-health"],
            "queueUrl": f"https://127.0.0.1:{ports['queue-metrics']}",
        },
        "fluxion": {
            "port": ports["fluxion"],
            "healthHost": "127.0.0.1",
            "healthPort": ports["fluxion-health"],
        },
        "scheduler": {
            "enabled": scheduler == "fluxion",
            "default": scheduler,
            "replicas": 1,
            "host": "127.0.0.1",
            "healthPort": ports["scheduler"],
            "metricsPort": ports["scheduler-metrics"],
            "extender": {"port": ports["extender"]},
        },
    }


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge values as helm does: maps are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        present = result.get(key)
        result[key] = (
            merged(present, value) if isinstance(present, Mapping) and isinstance(value, Mapping) else value
        )
    return result
