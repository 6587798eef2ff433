"""MiniClusters at admission: the rules of `fluxqueue.minicluster.rules`, and which edits come too late.

A MiniCluster that waits may be edited as its writer likes: its Job is made anew. Once it has nodes its pods have been made from what it
said, and only what they do not carry can still change.
"""

from __future__ import annotations

from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState
from fluxqueue.minicluster.rules import edit_problems, find_problems
from fluxqueue.webhook.opinions import Opinion

__all__ = ["judge_minicluster", "judge_minicluster_edit"]

_STILL_OPEN = frozenset({"", MiniClusterState.INVALID, MiniClusterState.QUEUED})


def judge_minicluster(minicluster: MiniCluster) -> Opinion:
    """Say what is wrong with a MiniCluster, and what of it does nothing."""
    findings = find_problems(minicluster)
    return Opinion(errors=findings.errors, warnings=findings.warnings)


def judge_minicluster_edit(former: MiniCluster, minicluster: MiniCluster) -> tuple[str, ...]:
    """Say what of an edit cannot be applied any more."""
    return edit_problems(former, minicluster, live=former.status.state not in _STILL_OPEN)
