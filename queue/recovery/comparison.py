"""Compares the cluster, the tables, the leader's memory and the graph.

Four places describe the same state: Kubernetes what exists and runs, Postgres what was decided, the leader's
memory what it works with, Fluxion what is free. The same comparison is made by the sweep each minute, by
`kubectl fluxqueue doctor`, and by the tests.

The four are not read at one instant, so a single look also sees changes that are under way. The doctor
therefore looks twice and keeps what both looks saw (`lasting`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fluxqueue.queue.recovery.clock_comparison import compare_clocks
from fluxqueue.queue.recovery.cluster_comparison import compare_cluster
from fluxqueue.queue.recovery.findings import Finding
from fluxqueue.queue.recovery.graph_comparison import compare_graph
from fluxqueue.queue.recovery.queue_comparison import compare_queue
from fluxqueue.queue.recovery.snapshot import SystemSnapshot

__all__ = ["differences", "lasting"]


def differences(snapshot: SystemSnapshot) -> list[Finding]:
    """Return everything that contradicts itself."""
    return [
        *compare_cluster(snapshot),
        *compare_queue(snapshot),
        *compare_graph(snapshot),
        *compare_clocks(snapshot),
    ]


def lasting(first: Iterable[Finding], second: Iterable[Finding]) -> list[Finding]:
    """Return what the second look found and the first look had found before."""
    before = {(finding.what, finding.about) for finding in first}
    return [finding for finding in second if (finding.what, finding.about) in before]
