"""What is known of a workload beside its request, since it was first released: failures, refusals of nodes,
preemptions and moves.

A workload keeps it in its row, as one JSON value. Its next match depends on it, and what people are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

__all__ = ["NO_REQUEUE_STATE", "GivenBack", "MadeRoom", "Moved", "NodeRefusal", "RequeueState", "Unused"]


class NodeRefusal(msgspec.Struct, frozen=True):
    """A node refused a pod: when, and until when other nodes are preferred."""

    at: datetime
    until: datetime


class GivenBack(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a running Job gave back, so that other work starts.

    Attributes
    ----------
    jobid
        The allocation that it is of. A later one is not smaller.
    ranks
        The slots of it that end, or have ended: all that were given back so far.
    due
        Those of them that were given back before the last time: their grace is over.
    stop_at
        Until when the last pods may go on that were chosen.
    message
        Of the last time: how many pods end, what is lost, and for whom.
    preempted_for
        Id of the workload that starts then, of the last time; 0: not known.
    """

    jobid: int
    ranks: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    stop_at: datetime
    message: str
    preempted_for: int = 0


class Moved(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """That a workload was moved so that other work starts: when it was chosen, for which workload (id), since
    when it did what is lost by that, and on how many nodes.
    """

    at: datetime
    first: int
    since: datetime
    nodes: int


class MadeRoom(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """That other work was moved, or gave pods back, so that a workload starts sooner.

    Attributes
    ----------
    at
        When that was chosen.
    planned
        When it would have started by the plan of then.
    nodes
        On how many nodes.
    works, moved
        How many workloads are moved or give pods back, and how many of them are moved.
    won_node_s, lost_node_s, given_node_s
        Node-seconds, as predicted; of what is lost, by pods that are given back.
    real_won_node_s, real_lost_node_s
        The same once it has started, and what was moved for it has restarted; None until then.
    """

    at: datetime
    planned: datetime
    nodes: int
    works: int
    won_node_s: int
    lost_node_s: int
    moved: int = 0
    given_node_s: int = 0
    real_won_node_s: int | None = None
    real_lost_node_s: int | None = None


class Unused(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Work that was idle for so long that work of any priority may preempt it (docs/idle.md).

    Attributes
    ----------
    jobid
        Its allocation.
    pods
        A hash of the uids of its pods: with others it is not idle any more.
    since, seen_at
        When it was first seen as idle, and when it last was before this was stored.
    seen_by
        Epoch of the leader that sees it as idle now; 0: its use is not known now.
    """

    jobid: int
    pods: str
    since: datetime
    seen_at: datetime
    seen_by: int = 0


class RequeueState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Failures of a workload so far on which its next match depends.

    Attributes
    ----------
    starts
        Consecutive releases whose pods were not created or bound in time.
    losses
        Consecutive losses of one of its nodes.
    refused_pods
        Consecutive releases after which the API server refused its pods.
    refused_binds
        Consecutive releases after which our own scheduler found that a node refused one of its pods.
    not_before
        Time before which it is not matched.
    refused
        Nodes that refused one of its pods.
    failure
        Why its pods did not start the last time.
    unreleasable
        Generation of its object if the API server refused the release repeatedly: it is held until the object
        is edited. 0: none.
    refused_releases
        The job id of its allocation, and how often the API server refused to release it there.
    owner
        Of a pod that a controller replaces: `fluxqueue.queue.model.requeue_states.owner_and_revision`. Its
        replacement begins with this state.
    submitted_at
        Of a pod that was preempted: when it was submitted. Its replacement keeps that.
    time_limit, stop_at
        When the queue began to end it because it ran beyond its duration, or was idle; until when it may go
        on after it was preempted.
    idle
        Since when and below which use it was idle, in words, if it is ended for that.
    preempted_for
        Id of the workload for which it was preempted; 0: not known.
    given_back
        Of a Job that goes on with fewer pods.
    moved
        The last time that it was moved so that other work starts.
    room
        What was moved the last time so that it starts.
    unused
        Since when it is idle, if work of any priority may preempt it for that. While it waits, it was idle
        when it was preempted, and waits behind all other work.
    """

    starts: int = 0
    losses: int = 0
    refused_pods: int = 0
    refused_binds: int = 0
    not_before: datetime | None = None
    refused: Mapping[str, NodeRefusal] = {}
    failure: str = ""
    unreleasable: int = 0
    refused_releases: tuple[int, int] = (0, 0)
    owner: str = ""
    submitted_at: datetime | None = None
    time_limit: datetime | None = None
    idle: str = ""
    stop_at: datetime | None = None
    preempted_for: int = 0
    given_back: GivenBack | None = None
    moved: Moved | None = None
    room: MadeRoom | None = None
    unused: Unused | None = None


NO_REQUEUE_STATE = RequeueState()
"""The value of nearly every workload."""
