"""With how few pods a Job may start: what its annotation says, else the default of its queue, and never fewer
than its own gang policy (``spec.scheduling``) says. Without an annotation that policy counts as one.

With fewer pods a Job takes longer. So it starts with no fewer than those with which it still ends before its
``activeDeadlineSeconds``, and within what its queue allows.

A default is no rule: it does not hold for Jobs that cannot have the annotation. Slices and required rules
about other pods need all pods.
"""

from __future__ import annotations

from dataclasses import replace

from fluxqueue.api import names
from fluxqueue.api.moldable import floor_problem, min_pods_problem
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.queue.cluster.context import QueueDefaults
from fluxqueue.queue.intake.submission import Submission

__all__ = ["min_pods_of"]


def min_pods_of(
    submission: Submission, queue: QueueDefaults, duration_s: int | None, *, slices: bool, pod_rules: bool
) -> int:
    """Return with how few pods a submission may start; 0 if only with all.

    Parameters
    ----------
    submission
        The object.
    queue
        What its queue decides.
    duration_s
        How long it takes with all its pods; None: without an end.
    slices, pod_rules
        True if it asks for slices of the topology, and if its pods have required rules about other pods.

    Raises
    ------
    InvalidRequest
        The annotation cannot be read, or is not for this object.
    """
    if submission.size is None:
        if problem := floor_problem(submission.meta):
            raise InvalidRequest(problem)
        return 0
    size, pods = replace(submission.size, slices=slices), submission.slots
    completions = size.completions or 0
    text = submission.meta.annotation(names.MIN_PODS_ANNOTATION)
    if text is None:
        least = max(-(-completions * (queue.min_pods_percent or 0) // 100), size.gang_pods)
        if not least or pod_rules or min_pods_problem(str(least), size):
            return 0
    elif problem := min_pods_problem(text, size):
        raise InvalidRequest(problem)
    elif pod_rules and int(text) < pods:
        raise InvalidRequest(
            f"annotation {names.MIN_PODS_ANNOTATION} is not for pods with required rules about other pods "
            "(podAntiAffinity, podAffinity, topologySpreadConstraints): use "
            f"{names.PODS_PER_NODE_ANNOTATION} or {names.REQUIRED_TOPOLOGY_ANNOTATION}, or leave it out"
        )
    else:
        least = int(text)
    if duration_s is None:
        return 0
    longest = min((each for each in (submission.deadline_s, queue.max_duration_s) if each), default=None)
    if longest is not None:
        least = max(least, -(-duration_s * pods // longest))
    return least if least < pods else 0
