"""`kubectl fluxqueue queues`: the FluxQueues with what they use of their limits.

Counts of workloads and nodes are in the status of a FluxQueue, which everybody reads. Cores are added up from
the FluxJobs of all namespaces, so only those who may list them see how many are in use. The queue ``default``
is there without a FluxQueue, with the defaults of one: then it has no counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TextIO

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import LIVE, FluxJob
from fluxqueue.api.fluxqueues import FluxQueue, QueueLimits
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.api_client import ApiClient, ApiRefused
from fluxqueue.cli.fitting import Narrowing, fitted, line_width
from fluxqueue.cli.jobs import state_of
from fluxqueue.cli.listing import list_jobs, list_queues
from fluxqueue.cli.node_use import asked_by_pod
from fluxqueue.cli.tables import age, columns, instant, wants_colour

__all__ = ["QUEUE_TITLES", "cores_by_queue", "queue_rows", "queues", "with_default"]

_FORBIDDEN = 403
QUEUE_TITLES = ["NAME", "STATE", "POLICY", "PRIORITY", "PENDING", "RUNNING", "NODES", "CORES", "AGE"]
_WIDE = ["PER-NAMESPACE", "PER-USER", "PER-WORKLOAD", "DURATION", "LONGEST", "SCHEDULER"]
_STYLES = {"held": "waits", "drained": "waits"}
_NARROWING = Narrowing((("AGE", 0), ("PRIORITY", 0)))


def queues(
    client: ApiClient,
    out: TextIO,
    now: datetime,
    *,
    wide: bool = False,
    titles: bool = True,
    notes: TextIO | None = None,
) -> int:
    """Print the queues.

    Parameters
    ----------
    client, out, now
        The API server, standard output, and the present time.
    wide, titles
        All columns; the line of titles.
    notes
        Standard error: says if the use of cores cannot be known.
    """
    found = list_queues(client)
    cores: Mapping[str, float] | None = None
    try:
        cores = cores_by_queue(item.job for item in list_jobs(client, None)[0])
    except ApiRefused as error:
        if error.status != _FORBIDDEN:
            raise
        (notes or sys.stderr).write(
            "Cores in use are not shown: you may not list the FluxJobs of all namespaces.\n"
        )
    header, rows = [*QUEUE_TITLES, *(_WIDE if wide else [])], queue_rows(found, cores, now, wide=wide)
    if not wide:
        header, rows = fitted(header, rows, line_width(out), _NARROWING)
    out.write(columns(header if titles else None, rows, _STYLES if wants_colour(out) else None))
    return 0


def cores_by_queue(jobs: Iterable[FluxJob]) -> dict[str, float]:
    """Return how many cores the work with nodes has, by queue."""
    cores: dict[str, float] = {}
    for job in jobs:
        if state_of(job) not in LIVE or not job.status.nodes:
            continue
        try:
            pods = sum(host != names.NO_NODE for host in hostlists.decode(job.status.nodes))
            used = sum(each.cpu for each in asked_by_pod(job, pods))
        except (hostlists.InvalidHostlist, ValueError, KeyError, TypeError):
            continue  # a FluxJob of another version
        cores[job.spec.queue] = cores.get(job.spec.queue, 0.0) + used
    return cores


def queue_rows(
    found: Sequence[FluxQueue], cores: Mapping[str, float] | None, now: datetime, *, wide: bool = False
) -> list[list[str]]:
    """Return the cells of all queues, in the order of their names."""
    return [_row(queue, cores, now, wide=wide, counted=queue in found) for queue in with_default(found)]


def with_default(found: Sequence[FluxQueue]) -> list[FluxQueue]:
    """Return the queues by name, with ``default`` if it has no FluxQueue."""
    there = any(queue.metadata.name == names.DEFAULT_QUEUE for queue in found)
    missing = [] if there else [FluxQueue(ObjectMeta(name=names.DEFAULT_QUEUE))]
    return sorted([*found, *missing], key=lambda queue: queue.metadata.name)


def _row(
    queue: FluxQueue, cores: Mapping[str, float] | None, now: datetime, *, wide: bool, counted: bool
) -> list[str]:
    spec, status, limits = queue.spec, queue.status, queue.spec.limits or QueueLimits()
    created = instant(queue.metadata.creation_timestamp)
    used = None if cores is None else cores.get(queue.metadata.name, 0.0)
    more = [
        *(
            part.words if part else ""
            for part in (limits.per_namespace, limits.per_user, limits.per_workload)
        ),
        age(spec.default_duration_seconds),
        age(spec.max_duration_seconds) if spec.max_duration_seconds else "",
        spec.scheduler or "",
    ]
    return [
        queue.metadata.name,
        spec.state,
        spec.policy,
        str(spec.priority),
        str(status.pending) if counted else "",
        _of(status.running if counted else None, limits.running),
        _of(status.nodes_in_use if counted else None, limits.nodes),
        _of(used, limits.cores),
        age((now - created).total_seconds()) if created else "",
        *(more if wide else []),
    ]


def _of(used: float | None, most: int | None) -> str:
    shown = "?" if used is None else f"{used:g}"
    return f"{shown}/{most}" if most is not None else "" if used is None else shown
