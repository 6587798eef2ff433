"""What a scenario gives every contender: the nodes, the queues, and the Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FOREVER", "RUN_SECONDS", "Site", "SiteQueue", "Work", "job"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
"""The annotation by which the local cluster ends a pod, for all contenders alike."""
FOREVER = "forever"


@dataclass(frozen=True)
class SiteQueue:
    """A queue for a part of the nodes.

    Attributes
    ----------
    name, cohort
        Its name; queues of one cohort share their nodes and lend each other what is free.
    nodes
        Node labels that select the nodes of the cohort.
    cpu, borrowed_cpu
        What it has by itself, and how much more it may use.
    """

    name: str
    cohort: str
    nodes: Mapping[str, str]
    cpu: int
    borrowed_cpu: int


@dataclass(frozen=True)
class Site:
    """The cluster of a scenario.

    Attributes
    ----------
    nodes, node_cpu, node_memory_gib, node_pods
        The number of nodes, and the shape of each.
    queues
        The queues; none: everything goes to one queue for all nodes (or to those that a contender makes of
        it).
    priorities
        The priorities that Jobs have.
    profiled
        The API server serves its profiles. This costs some CPU time, so such a scenario gives no other
        figures.
    """

    nodes: int = 32
    node_cpu: int = 8
    node_memory_gib: int = 32
    node_pods: int = 250
    queues: tuple[SiteQueue, ...] = ()
    priorities: tuple[int, ...] = ()
    profiled: bool = False

    @property
    def api_server_flags(self) -> tuple[str, ...]:
        """Additional flags of the API server."""
        return ("--profiling=true",) if self.profiled else ()

    def queue(self, name: str) -> SiteQueue:
        """Return one of the queues."""
        return next(queue for queue in self.queues if queue.name == name)


@dataclass(frozen=True)
class Work:
    """One Job of a load.

    Attributes
    ----------
    name
        Of the Job.
    cpu, memory
        Requests of each pod; no memory: none is requested.
    pods
        All run at once, as an Indexed Job if there are several.
    run_s
        Seconds after which a pod ends, from its start; or `FOREVER`.
    duration_s
        How long the user says that it runs; None: nothing is said.
    queue, priority
        One of the site's queues and priorities.
    least
        With how few pods it may run; 0: with all.
    """

    name: str
    cpu: str = "100m"
    memory: str | None = "64Mi"
    pods: int = 1
    run_s: str = FOREVER
    duration_s: int | None = None
    queue: str | None = None
    priority: int | None = None
    least: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)


def job(work: Work) -> dict[str, Any]:
    """Return the Job as a user of plain Kubernetes writes it, without queue and priority,
    which each contender adds in its own way.
    """
    requests = {"cpu": work.cpu} | ({"memory": work.memory} if work.memory else {})
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    shape = (
        {"completionMode": "Indexed", "completions": work.pods, "parallelism": work.pods}
        if work.pods > 1
        else {}
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": work.name, "labels": {}, "annotations": dict(work.annotations)},
        "spec": {
            **shape,
            "template": {
                "metadata": {"annotations": {RUN_SECONDS: work.run_s}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
