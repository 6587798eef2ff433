"""The changes that `Engine.apply` makes together: one value per mutating call, without what all calls share.

They are plain values so that a caller can say, in one atomic step, "this pod is no longer foreign (`ResizeSystem`), it is rank 3 of job
17 (`RestoreJobs`)", and either both hold or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fluxqueue.fluxion.messages import NodeShare, NodeSpec, RestoredJob

__all__ = [
    "AddNodes",
    "CancelJobs",
    "CancelPart",
    "Change",
    "ExtendJob",
    "RemoveNodes",
    "ResizeSystem",
    "RestoreJobs",
    "SetNodeStatus",
    "SetProperties",
    "nodes_of",
]


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """End these jobs; unknown ones are no error."""

    jobids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelPart:
    """Give back part of a job: slots or amounts on nodes, or vertices by path."""

    jobid: int
    shares: tuple[NodeShare, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreJobs:
    """Put back allocations that are known from elsewhere."""

    jobs: tuple[RestoredJob, ...]


@dataclass(frozen=True, slots=True)
class ResizeSystem:
    """Set what runs on these nodes without us (``amounts`` of each share)."""

    shares: tuple[NodeShare, ...]


@dataclass(frozen=True, slots=True)
class ExtendJob:
    """Move the end of a job."""

    jobid: int
    end: int


@dataclass(frozen=True, slots=True)
class SetNodeStatus:
    """Node name or containment path -> up."""

    up: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Node name -> all its properties from now on."""

    nodes: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes to add; a known name with another shape is resized."""

    nodes: tuple[NodeSpec, ...]


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Nodes to take away; jobs keep their shares on them until cancelled."""

    nodes: tuple[str, ...]


Change = CancelJobs | CancelPart | RestoreJobs | ResizeSystem | ExtendJob | SetNodeStatus | SetProperties | AddNodes | RemoveNodes


def nodes_of(change: Change) -> tuple[str, ...]:
    """Names of the nodes a change speaks of."""
    match change:
        case CancelPart(_, shares, _) | ResizeSystem(shares):
            return tuple(share.node for share in shares)
        case RestoreJobs(jobs):
            return tuple(share.node for job in jobs for share in job.shares)
        case AddNodes(specs):
            return tuple(spec.name for spec in specs)
        case _:
            return ()
