"""The verbs that change what waits: hold, release, cancel, prioritize, move.

Each is a small merge patch of the FluxJob's spec, the same that `kubectl patch` would send, with the person's own rights. The queue obeys
edits of what waits and puts back those of what has nodes already; that is known here before, so it is an error at once instead of an
Event later. What already is as asked is no error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.cli.cluster import ApiRefused, Cluster, ClusterError
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import collection
from fluxqueue.cli.lookup import fluxjobs_of

__all__ = ["Change", "cancelled", "held", "moved", "prioritized", "released", "steer"]

_LIVE = {State.ALLOCATED: "is being started", State.RUNNING: "runs", State.DRAINING: "is stopping"}
_FORBIDDEN = 403


@dataclass(frozen=True)
class Change:
    """What is asked of each workload.

    ``spec`` is the merge patch, ``done`` the word for it, and ``objection`` says in a sentence why it makes no sense for a FluxJob (empty:
    it does).
    """

    spec: dict[str, Any]
    done: str
    objection: Callable[[FluxJob], str]


def held() -> Change:
    """Keep it from starting."""
    return Change({"hold": True}, "held", _only_what_waits("held"))


def released() -> Change:
    """Let it start again."""
    return Change({"hold": False}, "released", _only_what_waits("released"))


def prioritized(priority: int) -> Change:
    """Give it another priority."""
    return Change({"priority": priority}, f"has priority {priority}", _only_what_waits("given another priority"))


def moved(cluster: Cluster, queue: str) -> Change:
    """Let it wait in another queue.

    Raises
    ------
    ClusterError
        If there is no such queue. Whoever may not look at queues is told by the workload's reason instead.
    """
    if queue != names.DEFAULT_QUEUE:
        try:
            cluster.get(f"{collection(names.FLUXQUEUES)}/{queue}")
        except ApiRefused as refused:
            if refused.status != _FORBIDDEN:
                raise
    return Change({"queue": queue}, f"moved to queue {queue}", _only_what_waits("moved"))


def cancelled() -> Change:
    """End it: a Job is suspended, a pod that waits is deleted."""
    return Change({"cancel": True}, "cancelled", _not_a_running_pod)


def steer(cluster: Cluster, namespace: str, wanted: tuple[str, ...], change: Change, out: TextIO) -> int:
    """Change every workload that the names mean, and say so.

    Returns
    -------
    int
        0.

    Raises
    ------
    ClusterError
        For the first name that is not there, of which nothing can be changed any more, or that the server refuses; those before it are
        changed. Of a Deployment with some pods running, the waiting ones are changed.
    """
    for name in wanted:
        found = [(job, change.objection(job)) for job in fluxjobs_of(cluster, namespace, name)]
        if all(objection for _, objection in found):
            job, objection = found[0]
            raise ClusterError(f"error: {_called(job)} {objection}")
        for job, objection in found:
            if not objection:
                out.write(f"{_called(job)} {change.done}{'' if _change(cluster, job, change) else ' (no change)'}\n")
    return 0


def _called(job: FluxJob) -> str:
    return object_name(job) or job.metadata.name


def _change(cluster: Cluster, job: FluxJob, change: Change) -> bool:
    """Whether there was anything to change."""
    now = {"hold": job.spec.hold, "cancel": job.spec.cancel, "priority": job.spec.priority, "queue": job.spec.queue}
    if all(now[field] == value for field, value in change.spec.items()):
        return False
    cluster.patch(f"{collection(names.FLUXJOBS, job.metadata.namespace)}/{job.metadata.name}", {"spec": change.spec})
    return True


def _only_what_waits(done: str) -> Callable[[FluxJob], str]:
    def objection(job: FluxJob) -> str:
        state = state_of(job)
        if state == State.PENDING:
            return ""
        doing = _LIVE.get(State(state), "has ended") if state in list(State) else "does not wait"
        return f"{doing}: only what waits can be {done}"

    return objection


def _not_a_running_pod(job: FluxJob) -> str:
    state = state_of(job)
    if state in (State.COMPLETED, State.FAILED, State.CANCELLED):
        return f"has ended already ({state})"
    if job.spec.object_ref.kind == "Pod" and state in (State.RUNNING, State.DRAINING):
        name = job.spec.object_ref.name
        return f"{_LIVE[State(state)]}, and a pod cannot be stopped without deleting it: kubectl delete pod {name} ends it"
    return ""
