"""The commands that edit FluxJobs: hold, release, cancel, prioritize, move.

Each one is a small merge patch of the FluxJob's spec, as ``kubectl patch`` would send it, with the person's
own permissions. The queue applies edits of pending workloads and reverts edits of workloads that have nodes.
This module checks that first, so that the person gets an error at once instead of an Event later. An edit
that changes nothing is no error. What is held or released is so when the command ends
(`fluxqueue.cli.shown_edits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import ENDED, FluxJob, State
from fluxqueue.cli.api_client import ApiClient, ClusterError, ServerUnreachable
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import collection
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.queue_names import require_queue
from fluxqueue.cli.remedies import described
from fluxqueue.cli.shown_edits import await_hold
from fluxqueue.cli.tables import printable

__all__ = [
    "FluxJobEdit",
    "cancelled",
    "edit_fluxjobs",
    "edit_selected",
    "ended_by",
    "held",
    "moved",
    "moved_to",
    "prioritized",
    "released",
    "title",
]

_LIVE = {State.ALLOCATED: "is being started", State.RUNNING: "runs", State.DRAINING: "is stopping"}


@dataclass(frozen=True)
class FluxJobEdit:
    """An edit of FluxJobs.

    ``spec`` is the merge patch, ``done`` the word for messages. ``objection`` returns why the edit is not
    possible for a FluxJob, empty if it is possible. ``is_so`` is said of a FluxJob in which there is nothing
    to change. ``awaited_hold`` is what the queue has to show before the command ends: that the workload is
    held, or is not; None if nothing is waited for.
    """

    spec: dict[str, Any]
    done: str
    objection: Callable[[FluxJob], str]
    is_so: str
    awaited_hold: bool | None = None


def held() -> FluxJobEdit:
    """Return the edit that keeps a workload from starting."""
    return FluxJobEdit({"hold": True}, "held", _only_what_waits("held"), "is held already", awaited_hold=True)


def released() -> FluxJobEdit:
    """Return the edit that lets a held workload start."""
    return FluxJobEdit(
        {"hold": False}, "released", _only_what_waits("released"), "is not held", awaited_hold=False
    )


def prioritized(priority: int) -> FluxJobEdit:
    """Return the edit that sets the priority."""
    said = f"has priority {priority}"
    return FluxJobEdit(
        {"priority": priority}, said, _only_what_waits("given another priority"), f"{said} already"
    )


def moved(client: ApiClient, queue: str) -> FluxJobEdit:
    """Return the edit that moves a workload to another queue.

    Raises
    ------
    ClusterError
        There is no such queue. A person who may not read queues finds that out from the workload's reason.
    """
    require_queue(client, queue)
    return moved_to(queue)


def moved_to(queue: str) -> FluxJobEdit:
    """Return the edit that moves a workload to a queue that exists."""
    return FluxJobEdit(
        {"queue": queue}, f"moved to queue {queue}", _only_what_waits("moved"), f"is in queue {queue} already"
    )


def cancelled() -> FluxJobEdit:
    """Return the edit that cancels a workload: a Job is suspended, a waiting pod is deleted."""
    return FluxJobEdit({"cancel": True}, "cancelled", _not_a_running_pod, "is being cancelled already")


def edit_fluxjobs(
    client: ApiClient, namespace: str, wanted: Sequence[str], change: FluxJobEdit, out: TextIO
) -> int:
    """Edit every workload of the given names, and print a line for each.

    Returns
    -------
    int
        0.

    Raises
    ------
    ClusterError
        After all edits, with a line for each name that does not exist, cannot be edited any more, or is
        refused by the server; the others are edited. Of a Deployment with some running pods, the waiting ones
        are edited. At once if the server does not answer.
    """
    errors: list[str] = []
    edited: list[FluxJob] = []
    for name in wanted:
        try:
            edited += _steer_one(client, namespace, name, change, out)
        except ServerUnreachable:
            raise
        except ClusterError as error:
            errors.append(described(error))
    return _shown(client, edited, change, out, errors)


def edit_selected(
    client: ApiClient,
    jobs: Sequence[FluxJob],
    change: FluxJobEdit,
    out: TextIO,
    agreed: Callable[[Sequence[str]], bool],
) -> int:
    """Edit those of some FluxJobs that can be edited, after a question.

    Parameters
    ----------
    client, change, out
        As for `edit_fluxjobs`.
    jobs
        What a person selected; what cannot be edited, or need not be, is left out.
    agreed
        Asks the person, given the titles of what would be edited.

    Returns
    -------
    int
        0, also if there is nothing to edit; 1 if the person does not agree.

    Raises
    ------
    ClusterError
        After all edits, with a line for each one that the server refused.
    """
    chosen = [job for job in jobs if not change.objection(job) and not _is_done(job, change)]
    if not chosen:
        out.write("Nothing that is selected can be changed.\n" if jobs else "Nothing is selected.\n")
        return 0
    if not agreed([title(job) for job in chosen]):
        out.write("Nothing was changed.\n")
        return 1
    errors: list[str] = []
    edited: list[FluxJob] = []
    for job in chosen:
        try:
            _change(client, job, change)
            edited.append(job)
            out.write(f"{title(job)} {change.done}\n")
        except ServerUnreachable:
            raise
        except ClusterError as error:
            errors.append(described(error))
    return _shown(client, edited, change, out, errors)


def _shown(
    client: ApiClient, edited: Sequence[FluxJob], change: FluxJobEdit, out: TextIO, errors: list[str]
) -> int:
    """Wait until the queue shows edits of which it is not seen at once, and raise all errors;
    else return 0.
    """
    if change.awaited_hold is not None:
        out.flush()
        try:
            await_hold(client, edited, out, hold=change.awaited_hold)
        except ClusterError as error:
            errors.append(described(error))
    if errors:
        raise ClusterError("\n".join(errors))
    return 0


def _steer_one(
    client: ApiClient, namespace: str, name: str, change: FluxJobEdit, out: TextIO
) -> list[FluxJob]:
    """Edit what a name stands for, print a line for each, and return what was edited."""
    edited: list[FluxJob] = []
    objections = [(job, change.objection(job)) for job in fluxjobs_of(client, namespace, name)]
    if all(objection for _, objection in objections):
        job, objection = objections[0]
        raise ClusterError(f"error: {title(job)} {objection}")
    for job, objection in objections:
        if objection:
            continue
        if changed := _change(client, job, change):
            edited.append(job)
        out.write(f"{title(job)} {change.done if changed else change.is_so}\n")
    return edited


def title(job: FluxJob) -> str:
    """Return what a person calls a workload: its object, or its FluxJob."""
    return printable(object_name(job) or job.metadata.name)


def _change(client: ApiClient, job: FluxJob, change: FluxJobEdit) -> bool:
    """Patch a FluxJob; return false if there is nothing to change."""
    if _is_done(job, change):
        return False
    client.patch(
        f"{collection(names.FLUXJOBS, job.metadata.namespace)}/{job.metadata.name}", {"spec": change.spec}
    )
    return True


def _is_done(job: FluxJob, change: FluxJobEdit) -> bool:
    now = {
        "hold": job.spec.hold,
        "cancel": job.spec.cancel,
        "priority": job.spec.priority,
        "queue": job.spec.queue,
    }
    return all(now[field] == value for field, value in change.spec.items())


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
    if state in ENDED:
        return f"has ended already ({state})"
    if end := ended_by(job):
        return f"{_LIVE[State(state)]}, and a pod cannot be stopped without deleting it: {end} ends it"
    return ""


def ended_by(job: FluxJob) -> str:
    """Return the command that ends work which runs and is no Job, since the queue deletes no pods that run;
    empty for all other work.
    """
    ref = job.spec.object_ref
    if ref.kind == "Job" or state_of(job) not in (State.RUNNING, State.DRAINING):
        return ""
    ours = ref.kind == "PodGroup" and ref.api_version == "v1"
    return (
        "kubectl delete "
        f"{f'pod -l {names.POD_GROUP_LABEL}={ref.name}' if ours else f'{ref.kind.lower()} {ref.name}'}"
    )
