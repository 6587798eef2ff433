"""What the queue reads from one pod: the Job that controls it or that it is part of,
and the node it is pinned to.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.metadata import OwnerReference
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.minicluster_jobs import job_served_by

__all__ = ["age", "controlling_job", "owning_job_uid", "pinned_node"]


def controlling_job(pod: Pod) -> OwnerReference | None:
    """Return the Job that controls a pod, so that its eviction would count as a failure of that;
    None if none does.
    """
    owner = pod.metadata.controller
    return (
        owner
        if owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")
        else None
    )


def owning_job_uid(pod: Pod) -> str | None:
    """Return the uid of the Job that a pod is part of, or None.

    A pod is part of the Job that controls it. The services pod of a MiniCluster is part of the Job whose
    brokers it serves.
    """
    job = controlling_job(pod)
    return job.uid if job is not None else job_served_by(pod)


def pinned_node(pod: Pod) -> str | None:
    """Return the node that a pod was released to, by either scheduler;
    None if it has none, or a list of nodes.
    """
    text = pod.metadata.annotation(names.NODES_ANNOTATION)
    return text if text and "," not in text and "[" not in text else None


def age(pod: Pod) -> tuple[str, str]:
    """Sort key: the oldest pod first, and pods of one second by name."""
    return pod.metadata.creation_timestamp or "", pod.metadata.name
