"""Bind refusals: the project's scheduler reports that it cannot bind a pod to its node.

People read the condition ``PodScheduled``, which every scheduler writes. It stays on the pod when the queue
revokes the pod's node and assigns another one, and it names no node in a form for programs. So the scheduler
writes a second condition in the same patch, which names the allocation and the node of the refusal. The
refusal is valid while the pod still has both.
"""

from __future__ import annotations

from typing import Any

from fluxqueue.api import names
from fluxqueue.api.pods import Pod

__all__ = ["UNSCHEDULABLE", "refusal", "refused_condition"]

UNSCHEDULABLE = "Unschedulable"
"""Reason of ``PodScheduled`` if the pod does not fit on its node.
With any other reason the scheduler only waits."""


def refused_condition(pod: Pod, at: str) -> dict[str, Any]:
    """Return the condition to write with ``PodScheduled`` for a pod that cannot be bound to its node.

    Parameters
    ----------
    pod
        The pod, as it was read; its node and its allocation are named.
    at
        Time of the refusal, RFC 3339.
    """
    return {
        "type": names.REFUSED_CONDITION,
        "status": "True",
        "reason": UNSCHEDULABLE,
        "message": _released_to(pod),
        "lastTransitionTime": at,
    }


def refusal(pod: Pod) -> str:
    """Return why the project's scheduler does not bind a pod to its present node;
    empty if there is no such refusal.
    """
    scheduled, refused = pod.status.condition("PodScheduled"), pod.status.condition(names.REFUSED_CONDITION)
    if (
        not pod.revocable
        or scheduled is None
        or scheduled.status != "False"
        or scheduled.reason != UNSCHEDULABLE
    ):
        return ""
    if refused is None or refused.message != _released_to(pod):
        return ""
    return scheduled.message.rstrip(".") or scheduled.reason


def _released_to(pod: Pod) -> str:
    meta = pod.metadata
    return (
        f"{meta.annotation(names.ALLOCATION_ANNOTATION) or ''} "
        f"{meta.annotation(names.NODES_ANNOTATION) or ''}"
    )
