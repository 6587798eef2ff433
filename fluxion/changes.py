"""The changes that `Engine.apply` makes: one value for each kind.

As values, several changes can be made in one atomic step. For example, the pod that was part of a node's
system allocation (`ResizeSystem`) becomes rank 3 of job 17 (`RestoreJobs`): either both changes are made or
neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.messages import AdvanceReservation, GraphNodeSpec, NodeShare, RestoredJob

__all__ = [
    "AddNodes",
    "CancelJobs",
    "CancelPart",
    "Change",
    "ExtendJob",
    "RemoveNodes",
    "ResizeSystem",
    "RestoreJobs",
    "SetAdvanceReservations",
    "SetNodeStatus",
    "SetProperties",
    "nodes_of",
]


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """End jobs; unknown ones are no error."""

    jobids: Sequence[int]


@dataclass(frozen=True, slots=True)
class CancelPart:
    """Give back part of a job: slots or amounts on nodes, or vertices by path; it ends with its last vertex.
    Not idempotent.
    """

    jobid: int
    shares: Sequence[NodeShare] = ()
    paths: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RestoreJobs:
    """Restore allocations that are known from elsewhere; idempotent."""

    jobs: Sequence[RestoredJob]


@dataclass(frozen=True, slots=True)
class ResizeSystem:
    """Set the system allocation of nodes, which is what runs there outside of Fluxion (``amounts`` of each
    share).
    """

    shares: Sequence[NodeShare]


@dataclass(frozen=True, slots=True)
class ExtendJob:
    """Move the end of a job (Unix seconds)."""

    jobid: int
    end: int


@dataclass(frozen=True, slots=True)
class SetNodeStatus:
    """Mark nodes or vertices up or down (node name or containment path -> up); running jobs stay."""

    up: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Replace the properties of nodes: node name -> all its properties."""

    nodes: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Add nodes; a known name with another shape is resized, and jobs on it stay."""

    nodes: Sequence[GraphNodeSpec]


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Remove nodes; jobs keep their shares on them until cancelled."""

    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class SetAdvanceReservations:
    """Set all advance reservations; those that are not named any more are over."""

    reservations: Sequence[AdvanceReservation]


Change = (
    CancelJobs
    | CancelPart
    | RestoreJobs
    | ResizeSystem
    | ExtendJob
    | SetNodeStatus
    | SetProperties
    | AddNodes
    | RemoveNodes
    | SetAdvanceReservations
)


def nodes_of(change: Change) -> tuple[str, ...]:
    """Return the names of the nodes whose excess a change may alter."""
    match change:
        case CancelPart(_, shares, _) | ResizeSystem(shares):
            return tuple(share.node for share in shares)
        case RestoreJobs(jobs):
            return tuple(share.node for job in jobs for share in job.shares)
        case AddNodes(specs):
            return tuple(spec.name for spec in specs)
        case _:
            return ()
