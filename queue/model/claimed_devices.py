"""The devices that a jobspec claims, in words: they are often what a workload waits for,
and few know how many there are.
"""

from __future__ import annotations

from collections import Counter

from fluxqueue.api.formatting import format_graph_amount
from fluxqueue.api.graphnames import is_device
from fluxqueue.queue.model.jobspecs import slots_in

__all__ = ["claimed_devices"]


def claimed_devices(jobspec: str) -> str:
    """Return the devices that all pods of a jobspec claim together; empty if they claim none."""
    if '"devices:' not in jobspec:
        return ""
    counts: Counter[str] = Counter()
    for _, number, members in slots_in(jobspec):
        counts.update({kind: amount * number for kind, amount in members.items() if is_device(kind)})
    return " and ".join(format_graph_amount(kind, count) for kind, count in sorted(counts.items()))
