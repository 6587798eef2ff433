"""What must hold of a whole fluxqueue whenever nothing is under way: cluster, queue and matcher tell the same story.

The queue's own doctor says so (`fluxqueue.queue.doctor`), reading all three anew; what it is blind to would be missed here as well, so its
rules have tests of their own. A single look is not taken at one moment, so after a change a test waits until there is nothing to say.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import psycopg
from replicas import leader, matcher

from fluxqueue.fluxion.client import FluxionClient
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import Call, JobInfo, Mode
from fluxqueue.local.inprocess import InProcessPlane

__all__ = ["fluxion_jobs", "unfinished", "violations"]

_UNFINISHED = """
SELECT w.kind, w.name, w.state, w.reason, a.jobid
  FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id AND a.freed_at IS NULL
 WHERE w.namespace = %s AND (a.jobid IS NOT NULL OR w.state NOT IN ('Completed', 'Failed', 'Cancelled'))
"""


def fluxion_jobs(plane: InProcessPlane) -> list[JobInfo]:
    """What Fluxion holds of workloads, of any namespace."""
    name = matcher(plane)
    if name is None:
        raise FluxionError("no queue leads at the moment, so nobody fills a matcher")
    with FluxionClient(f"127.0.0.1:{plane.programs[name].port}") as client:
        return [job for job in client.list_jobs(call=Call(), with_shares=True) if job.mode is not Mode.SYSTEM]


def unfinished(plane: InProcessPlane, namespace: str) -> list[str]:
    """Workloads of a namespace that the queue has not done with, in sentences."""
    return [
        f"the queue still has {kind} {name} as {state} {reason}, allocation {jobid}"
        for kind, name, state, reason, jobid in _asked(plane, _UNFINISHED, namespace)
    ]


def violations(plane: InProcessPlane) -> list[str]:
    """What contradicts itself as the queue's own doctor sees it in one look, in sentences; empty if all is well."""
    name = leader(plane)
    if name is None:
        return ["no queue leads at the moment"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{plane.programs[name].port}/doctor?looks=1", timeout=30) as answer:
            return [finding["sentence"] for finding in json.load(answer)["findings"]]
    except urllib.error.HTTPError as error:
        return [str(json.load(error).get("error"))]
    except OSError as error:
        return [f"the queue does not answer: {error}"]


def _asked(plane: InProcessPlane, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(plane.database_dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters).fetchall()
