"""``kubectl fluxqueue priority``: by which priority each waiting workload is ordered, and what it is the sum
of.

All is computed from what people may read: the FluxJob (priority, submit time, pods, account, submitting
user), the FluxQueue (weights) and the FluxAccount (factors), by the queue's own formula
(`fluxqueue.api.priorityfactors`). The queue computes once a minute, so its age part may be up to a minute
behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.fluxqueues import FluxQueueSpec
from fluxqueue.api.priorityfactors import DEFAULT_WEIGHTS, PriorityParts, Waiting, priority_parts
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.fitting import Narrowing, fitted, line_width
from fluxqueue.cli.job_selection import is_called
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import list_accounts, list_jobs, list_queues
from fluxqueue.cli.shares import shares_of
from fluxqueue.cli.tables import age, columns, instant
from fluxqueue.queue.model.fair_share import FairShare, user_factor
from fluxqueue.queue.model.users import user_named

__all__ = ["PriorityQuery", "priorities", "table", "weights_table"]

_PARTS = ["PRIORITY", "AGE", "FAIRSHARE", "SIZE", "OFQUEUE", "OWN"]
_INPUTS = ["WAIT", "ACCOUNT", "FACTOR", "PODS"]
_NARROWING = Narrowing(
    (("OBJECT", 24), ("QUEUE", 8), ("NAMESPACE", 8), ("OBJECT", 12), ("OWN", 0), ("SIZE", 0))
)
_WEIGHTS = ["QUEUE", "AGE", "FAIRSHARE", "SIZE", "OFQUEUE", "OWN", "MAXAGE", "FULLSIZE", "PRIORITY"]


@dataclass(frozen=True)
class PriorityQuery:
    """The options; ``namespace`` None means all namespaces."""

    namespace: str | None = "default"
    names: tuple[str, ...] = ()
    queue: str = ""
    wide: bool = False
    weights: bool = False
    titles: bool = True


def priorities(client: ApiClient, query: PriorityQuery, out: TextIO, now: datetime) -> int:
    """Print the priorities of waiting workloads, or the weights of the queues.

    Raises
    ------
    ClusterError
        A name is not that of waiting work, or the server refuses.
    """
    specs = {queue.metadata.name: queue.spec for queue in list_queues(client)}
    if query.weights:
        out.write(
            weights_table(
                {name: spec for name, spec in specs.items() if query.queue in ("", name)}, titles=query.titles
            )
        )
        return 0
    listed, _ = list_jobs(client, query.namespace)
    waiting = [
        each.job
        for each in listed
        if state_of(each.job) == State.PENDING and query.queue in ("", each.job.spec.queue)
    ]
    for name in query.names:
        if not any(is_called(job, name) for job in waiting):
            raise ClusterError(f'error: "{name}" does not wait; the priority of other work orders nothing')
    chosen = [job for job in waiting if not query.names or any(is_called(job, name) for name in query.names)]
    if not chosen:
        out.write("Nothing waits.\n")
        return 0
    accounts = shares_of(list_accounts(client)) if any(job.status.account for job in chosen) else {}
    out.write(table(chosen, specs, accounts, now, query, line_width(out)))
    return 0


def table(
    jobs: Sequence[FluxJob],
    specs: Mapping[str, FluxQueueSpec],
    accounts: Mapping[str, FairShare],
    now: datetime,
    query: PriorityQuery,
    width: int | None = None,
) -> str:
    """Return a line for each job, in the queue's order: the priority, its parts, and (`wide`) what these come
    from.

    Names are cut until a line is at most so wide.
    """
    found = [(_parts(job, specs, accounts, now), job) for job in jobs]
    found.sort(key=lambda each: (-each[0].total, each[1].status.submitted_at or "", each[1].metadata.name))
    start = ["NAMESPACE"] if query.namespace is None else []
    titles = [
        *start,
        *(["NAME"] if query.wide else []),
        "OBJECT",
        "QUEUE",
        *_PARTS,
        *(_INPUTS if query.wide else []),
    ]
    lines = []
    for parts, job in found:
        cells = [job.metadata.namespace] if query.namespace is None else []
        cells += [
            *([job.metadata.name] if query.wide else []),
            object_name(job),
            job.spec.queue,
            str(parts.total),
            *map(str, parts),
        ]
        if query.wide:
            cells += [
                age(_waited_s(job, now)),
                job.status.account,
                f"{_factor(job, accounts):.6g}",
                str(job.spec.pods),
            ]
        lines.append(cells)
    if not query.wide:
        titles, lines = fitted(titles, lines, width, _NARROWING)
    return columns(titles if query.titles else None, lines)


def weights_table(specs: Mapping[str, FluxQueueSpec], *, titles: bool = True) -> str:
    """Return the weights of each queue, as they count, and its priority."""
    lines = []
    for name, spec in sorted(specs.items()):
        each = spec.priority_weights or DEFAULT_WEIGHTS
        figures = (each.age, each.fair_share, each.size, each.queue, each.priority_class)
        lines.append(
            [
                name,
                *map(str, figures),
                age(each.max_age_seconds),
                f"{each.full_size_pods} pods",
                str(spec.priority),
            ]
        )
    return columns(_WEIGHTS if titles else None, lines)


def _factor(job: FluxJob, accounts: Mapping[str, FairShare]) -> float:
    return user_factor(
        accounts.get(job.status.account), user_named(job.status.submitted_by, job.metadata.namespace)
    )


def _parts(
    job: FluxJob, specs: Mapping[str, FluxQueueSpec], accounts: Mapping[str, FairShare], now: datetime
) -> PriorityParts:
    spec = specs.get(job.spec.queue, FluxQueueSpec())
    waiting = Waiting(job.spec.priority, _waited_s(job, now), _factor(job, accounts), job.spec.pods)
    return priority_parts(waiting, spec.priority_weights or DEFAULT_WEIGHTS, spec.priority)


def _waited_s(job: FluxJob, now: datetime) -> float:
    submitted = instant(job.status.submitted_at or job.metadata.creation_timestamp)
    return (now - submitted).total_seconds() if submitted is not None else 0.0
