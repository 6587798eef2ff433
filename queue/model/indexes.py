"""Completion indexes of a Job: how Kubernetes writes a set of them, and which node each index has.

Only indexes that are not done are matched again after a requeue. In the hostlist of a requeued Job the others
read ``none.invalid``, so that the position in the list and the index stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluxqueue.api import names
from fluxqueue.api.hostlists import InvalidHostlist
from fluxqueue.api.jobs import Job

__all__ = ["done_indexes", "hosts_by_index", "parse_indexes", "write_indexes"]


def parse_indexes(text: str) -> set[int]:
    """Read a set of indexes as Kubernetes writes it: ``1,3-5``.

    Raises
    ------
    InvalidHostlist
        Never for what the Job controller writes.
    """
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise InvalidHostlist(f"{text!r} is not a list of indexes")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def write_indexes(indexes: Iterable[int]) -> str:
    """Write a set of indexes as Kubernetes does: ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def done_indexes(job: Job) -> set[int]:
    """Return the completion indexes of a Job that get no more pods: they succeeded, or failed for good."""
    return parse_indexes(job.status.completed_indexes) | parse_indexes(job.status.failed_indexes)


def hosts_by_index(hosts: Sequence[str], done: str) -> tuple[str, ...]:
    """Return the node of each index; an index that is done gets `fluxqueue.api.names.NO_NODE`.

    Parameters
    ----------
    hosts
        The granted nodes, one for each index that is not done. Of a Job that starts with fewer pods there are
        fewer.
    done
        The indexes that are done, as `fluxqueue.queue.model.records.Workload` stores them (``0-2,5``).
    """
    over = parse_indexes(done)
    if not over:
        return tuple(hosts)
    placed: list[str] = []
    left = list(reversed(hosts))
    while left or len(placed) in over:
        placed.append(names.NO_NODE if len(placed) in over else left.pop())
    return tuple(placed)
