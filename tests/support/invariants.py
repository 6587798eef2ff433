"""The invariants of a complete fluxqueue while no change is in progress: cluster, queue and matcher are
consistent.

The queue's own doctor checks them (`fluxqueue.queue.recovery.comparison`) and reads all three again. These
tests cannot find what the doctor does not find, so its rules have tests of their own. One check does not read
everything at the same time, so after a change a test waits until there is no difference.
"""

from __future__ import annotations

from typing import Any

import psycopg
from support.replicas import leader, matcher

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import CallContext, JobInfo, JobMode
from fluxqueue.fluxion.rpc.client import FluxionClient
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.operator_requests import OperatorRefused

__all__ = ["fluxion_jobs", "unfinished", "violations"]

_UNFINISHED = """
SELECT w.kind, w.name, w.state, w.reason, a.jobid
  FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id AND a.freed_at IS NULL
 WHERE w.namespace = %s AND (a.jobid IS NOT NULL OR w.state NOT IN ('Completed', 'Failed', 'Cancelled'))
"""


def fluxion_jobs(cluster: InProcessCluster) -> list[JobInfo]:
    """Return the jobs of workloads in Fluxion, of all namespaces."""
    name = matcher(cluster)
    if name is None:
        raise FluxionError("no queue leads, so no matcher is filled")
    with FluxionClient(f"127.0.0.1:{cluster.programs[name].port}") as client:
        return [
            job
            for job in client.list_jobs(call=CallContext(), with_shares=True)
            if job.mode is not JobMode.SYSTEM
        ]


def unfinished(cluster: InProcessCluster, namespace: str) -> list[str]:
    """Return a message for each unfinished workload of a namespace."""
    return [
        f"the queue still has {kind} {name} as {state} {reason}, allocation {jobid}"
        for kind, name, state, reason, jobid in _query(cluster, _UNFINISHED, namespace)
    ]


def violations(cluster: InProcessCluster) -> list[str]:
    """Return the findings of one check of the queue's doctor, as messages; empty if all is consistent."""
    name = leader(cluster)
    if name is None:
        return ["no queue leads"]
    try:
        port = cluster.programs[name].metrics_port
        assert port is not None
        return [
            finding["sentence"]
            for finding in cluster.operators.get(port, "/doctor?looks=1", timeout_s=30)["findings"]
        ]
    except OperatorRefused as error:
        return [str(error)]
    except OSError as error:
        return [f"the queue does not answer: {error}"]


def _query(cluster: InProcessCluster, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(cluster.database_dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters).fetchall()
