"""Elastic work as people write it: with how few pods a Job may start, and a Deployment goes on.

``fluxqueue/min-pods`` is for Indexed Jobs whose pods run together (parallelism is completions). It hands the
parallelism of the Job over to the queue, which sets it between that number and the completions. The
completions stay what the user asked for.

On the pods of a Deployment, ReplicaSet or StatefulSet it says how many of them are to run at least while
other work takes what is above. The queue never scales the owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.durations import FURTHEST_PLAN_S
from fluxqueue.api.job_scheduling import JobScheduling
from fluxqueue.api.metadata import ObjectMeta

__all__ = ["JobSize", "floor_problem", "min_pods_problem", "molded_duration", "read_min_pods"]

_FORM = re.compile(r"[0-9]{1,9}")
_WITH_FLOOR = (("apps", "ReplicaSet"), ("apps", "StatefulSet"))


@dataclass(frozen=True, slots=True)
class JobSize:
    """What decides whether a Job can be moldable.

    Attributes
    ----------
    indexed
        Its pods have completion indexes.
    completions, parallelism
        As its spec has them.
    cluster
        It is a Flux cluster, whose brokers know their number.
    slices
        It asks for slices below a level of the topology.
    scheduling
        Its ``spec.scheduling``.
    """

    indexed: bool
    completions: int | None
    parallelism: int | None
    cluster: bool = False
    slices: bool = False
    scheduling: JobScheduling | None = None

    @property
    def gang_pods(self) -> int:
        """How many pods start together at least, as its ``spec.scheduling`` says; 0: it does not say."""
        return self.scheduling.gang_pods(self.parallelism) if self.scheduling is not None else 0

    @property
    def as_one(self) -> bool:
        """True if its ``spec.scheduling`` says that no pod is taken away without the others."""
        return self.scheduling is not None and self.scheduling.as_one

    @property
    def together(self) -> bool:
        """True for an Indexed Job all of whose pods run at once."""
        return (
            self.indexed
            and self.completions is not None
            and self.completions == (1 if self.parallelism is None else self.parallelism)
        )


def read_min_pods(text: str) -> int | None:
    """Return the number of an annotation ``fluxqueue/min-pods``; None if it is none."""
    return int(text) if _FORM.fullmatch(text) else None


def min_pods_problem(text: str, size: JobSize) -> str:
    """Return why a Job cannot have this ``fluxqueue/min-pods``, with the remedy; empty if it can."""
    where = f"annotation {names.MIN_PODS_ANNOTATION}"
    if size.cluster:
        return f"{where} is not for Flux clusters, whose brokers know their number: leave it out"
    if not size.together:
        return (
            f"{where} is for Indexed Jobs whose pods run together: set completionMode: Indexed, "
            "parallelism the same as completions"
        )
    if size.slices:
        return (
            f"{where} and {names.TOPOLOGY_SLICE_ANNOTATION} cannot both hold, "
            "because fewer pods form no whole slices: leave one out"
        )
    if size.as_one:
        return (
            f"{where} and spec.scheduling.disruptionMode: all cannot both hold, "
            "because a Job that may have fewer pods gives some back before other work is preempted: "
            "leave one out"
        )
    number = read_min_pods(text)
    if number is None or not 1 <= number <= (size.completions or 1):
        return (
            f"{where}: {text!r:.40} is not a number of its pods: "
            f"write a whole number from 1 to {size.completions}"
        )
    if number < size.gang_pods:
        return (
            f"{where}: {number} is below {size.gang_pods}, which is the least that "
            "spec.scheduling.schedulingPolicy.gang starts: leave the annotation out, or set minCount to it"
        )
    return ""


def floor_problem(pod: ObjectMeta) -> str:
    """Return why a pod that is of no Job cannot have its ``fluxqueue/min-pods``, with the remedy;
    empty if it has none, or can.
    """
    owner, text = pod.controller, pod.annotation(names.MIN_PODS_ANNOTATION)
    if text is None or (owner is not None and owner.kind == "Job"):
        return ""
    where = f"annotation {names.MIN_PODS_ANNOTATION}"
    if owner is None or (owner.api_version.partition("/")[0], owner.kind) not in _WITH_FLOOR:
        return (
            f"{where} is for Indexed Jobs, and for the pods of Deployments, ReplicaSets and StatefulSets: "
            "leave it out"
        )
    if pod.annotation(names.GANG_ANNOTATION) == "true" or pod.label(names.POD_GROUP_LABEL):
        return (
            f"{where} is not for pods that start together with others "
            f"({names.GANG_ANNOTATION}, {names.POD_GROUP_LABEL}): leave one out"
        )
    if not read_min_pods(text):
        return f"{where}: {text!r:.40} is not a number of its pods: write a whole number from 1"
    return ""


def molded_duration(duration_s: int, size: int, slots: int) -> int:
    """Return how many seconds work takes that is started with some of its slots or pods: the same work,
    divided among fewer.

    It is a hundred years at most, unless it was stated to be longer.
    """
    return min(-(-duration_s * size // slots), max(duration_s, FURTHEST_PLAN_S))
