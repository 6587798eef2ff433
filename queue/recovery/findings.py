"""Differences between the cluster, the tables, the leader's memory and the graph, in sentences.

Each names the object that it is about, the invariant that it violates (`docs/architecture.md`) and what
repairs it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Difference", "Finding"]


class Difference(enum.StrEnum):
    """The kinds of differences; their values are labels of the metric and words of the command's output."""

    OVERBOOKED = "overbooked"
    STRAY_POD = "stray-pod"
    MISPLACED_POD = "misplaced-pod"
    UNKNOWN_OBJECT = "unknown-object"
    LOST_OBJECT = "lost-object"
    NO_REASON = "no-reason"
    NO_FLUXJOB = "no-fluxjob"
    MOVED_RESERVATION = "broken-promise"
    MEMORY = "memory"
    UNBOUND_POD = "unbound-pod"
    GRAPH_JOBS = "graph-jobs"
    GRAPH_NODES = "graph-nodes"
    GRAPH_FOREIGN = "graph-foreign"
    CLOCK = "clock"

    @property
    def invariant(self) -> str:
        """The invariant that it violates."""
        return _INVARIANTS[self]

    @property
    def remedy(self) -> str:
        """What repairs it."""
        return _REMEDIES[self]


_INVARIANTS: Mapping[Difference, str] = {
    Difference.OVERBOOKED: "I1",
    Difference.STRAY_POD: "I3",
    Difference.MISPLACED_POD: "I2",
    Difference.UNKNOWN_OBJECT: "I4",
    Difference.LOST_OBJECT: "I4",
    Difference.NO_REASON: "I4",
    Difference.NO_FLUXJOB: "I4",
    Difference.MOVED_RESERVATION: "I8",
    Difference.UNBOUND_POD: "I4",
    Difference.MEMORY: "I7",
    Difference.GRAPH_JOBS: "I1",
    Difference.GRAPH_NODES: "I1",
    Difference.GRAPH_FOREIGN: "I1",
    Difference.CLOCK: "I8",
}
_SWEEP = "the queue repairs it within a minute, --repair at once"
_REMEDIES: Mapping[Difference, str] = {
    Difference.OVERBOOKED: (
        "no more work is started there; delete one of the pods, or suspend its Job, to relieve the node"
    ),
    Difference.STRAY_POD: "it is counted as foreign; delete it if it should not run",
    Difference.MISPLACED_POD: "suspend its Job and resume it, and it is planned again",
    Difference.UNKNOWN_OBJECT: _SWEEP,
    Difference.LOST_OBJECT: _SWEEP,
    Difference.NO_REASON: _SWEEP,
    Difference.NO_FLUXJOB: _SWEEP,
    Difference.MOVED_RESERVATION: (
        "none is needed: it starts when it can; report the problem with the history of the workload"
    ),
    Difference.UNBOUND_POD: (
        "start the scheduler (kubectl get deployments -l app.kubernetes.io/component=scheduler), "
        "or delete the pod"
    ),
    Difference.MEMORY: "the queue reads the tables again within a minute, --repair at once",
    Difference.GRAPH_JOBS: "the queue fills the graph again within a minute, --repair at once",
    Difference.GRAPH_NODES: "the queue fills the graph again within a minute, --repair at once",
    Difference.GRAPH_FOREIGN: "the queue fills the graph again within a minute, --repair at once",
    Difference.CLOCK: (
        "set the clock of that machine by NTP; the time of the queue returns by itself, "
        "at a fifth of a second each second"
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference.

    Attributes
    ----------
    what
        Its kind.
    about
        The object: ``Pod science/lammps-0``, ``node n1``, ``job 17``.
    sentence
        What is wrong, as a complete sentence.
    """

    what: Difference
    about: str
    sentence: str
