"""Validation of MiniClusters: the rules of `fluxqueue.minicluster.rules`, and which edits come too late.

A MiniCluster that waits may be edited freely, because its Job is rebuilt. Once it has nodes, its pods exist,
and only fields that the pods do not contain can still change.
"""

from __future__ import annotations

from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState
from fluxqueue.api.topology import unreadable_topology
from fluxqueue.minicluster.rules import edit_problems, find_problems
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.problems import ObjectProblems
from fluxqueue.webhook.start_annotations import start_problems

__all__ = ["validate_minicluster", "validate_minicluster_edit"]

_STILL_OPEN = frozenset({"", MiniClusterState.INVALID, MiniClusterState.QUEUED})


def validate_minicluster(minicluster: MiniCluster, settings: AdmissionSettings) -> ObjectProblems:
    """Return what is wrong with a MiniCluster, and which fields have no effect."""
    findings = find_problems(minicluster)
    starts = tuple(start_problems("MiniCluster", minicluster.metadata))
    below = unreadable_topology(minicluster.metadata.annotations, levels=settings.levels)
    no_queue = settings.queues.warning("spec.queue", minicluster.spec.queue)
    return ObjectProblems(
        errors=(*findings.errors, *starts, *below),
        warnings=(*findings.warnings, *((no_queue,) if no_queue else ())),
    )


def validate_minicluster_edit(former: MiniCluster, minicluster: MiniCluster) -> tuple[str, ...]:
    """Return which parts of an edit can no longer be applied."""
    return edit_problems(former, minicluster, live=former.status.state not in _STILL_OPEN)
