"""``spec.scheduling`` of Jobs: what a Job asks of the cluster's own scheduler for all its pods
(Kubernetes 1.37, KEP-5547).

The Job controller makes a PodGroup of it, and kube-scheduler binds no pod of a gang before as many exist as
it needs. A Job that can never have so many would never start, so both the webhook and the queue say so.
"""

from __future__ import annotations

from typing import Any

from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import PodResourceClaim, SchedulingConstraints

__all__ = ["JobScheduling", "scheduling_problem"]


class _Gang(PartialObject, frozen=True):
    min_count: int | None = None


class _Policy(PartialObject, frozen=True):
    gang: _Gang | None = None


class _DisruptionMode(PartialObject, frozen=True):
    all: dict[str, Any] | None = None


class JobScheduling(PartialObject, frozen=True):
    """The fields that are read of it."""

    scheduling_policy: _Policy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: _DisruptionMode | None = None
    resource_claims: list[PodResourceClaim] | None = None

    def gang_pods(self, parallelism: int | None) -> int:
        """Return how many of its pods start together at least, if it is a gang; 0 if it is none.
        Kubernetes takes the parallelism of the Job if ``minCount`` is not set.
        """
        gang = self.scheduling_policy.gang if self.scheduling_policy is not None else None
        if gang is None:
            return 0
        return gang.min_count or max(1 if parallelism is None else parallelism, 1)

    @property
    def as_one(self) -> bool:
        """True if none of its pods may be taken away without the others."""
        return self.disruption_mode is not None and self.disruption_mode.all is not None


def scheduling_problem(
    own: JobScheduling | None, pod_group: str | None, parallelism: int | None, pods_left: int
) -> str:
    """Return why kube-scheduler would not do what a Job says, with the remedy; empty if it would.

    Parameters
    ----------
    own
        What the Job says.
    pod_group
        The PodGroup that its template names; empty if it names none.
    parallelism
        Of the Job.
    pods_left
        How many pods of it run at once, without what has completed.
    """
    if own is None:
        return ""
    if pod_group:
        return (
            "spec.scheduling has no effect, because spec.template.spec.schedulingGroup names PodGroup "
            f"{pod_group:.253}: leave one of them out"
        )
    least = own.gang_pods(parallelism)
    if 1 <= pods_left < least:
        return (
            f"spec.scheduling.schedulingPolicy.gang needs {least} pods at once, and only {pods_left} run: "
            f"set its minCount to {pods_left} or less, since kube-scheduler binds no fewer"
        )
    return ""
