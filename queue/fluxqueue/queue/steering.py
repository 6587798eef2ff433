"""What a person changed in a FluxJob, told apart from what the queue wrote there itself.

Both write the same fields of the spec: a person moves a workload to another queue, and the queue writes the queue that the Job's label
names now. So the queue notes in an annotation what of the spec it has taken in, in the same write as the spec. What differs from that
note is an edit nobody has looked at yet: it becomes a wish in the workload's row, and then the note is brought up to date. An edit that
comes while all this goes on differs from the note too, so none is lost, and a crash in between takes the same edit in again.

Wishes live in the row, not in the FluxJob, because a FluxJob that is deleted comes back. A wish counts before what the object says. A
duration of 0 takes the wish back, since it is what a FluxJob shows where nobody said one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.queue.records import NO_WISHES, Wishes, Workload

__all__ = ["Steered", "acknowledgement", "edits_of", "refusal", "spec_of", "steered", "taken_in", "wishes_after"]


class Steered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The part of a FluxJob's spec that is a person's as well as the queue's; 0 is no duration."""

    queue: str
    priority: int
    duration_seconds: int
    hold: bool


_FIELDS = tuple(field.name for field in msgspec.structs.fields(Steered))


def steered(workload: Workload) -> Steered:
    """What the spec should say of a workload."""
    return Steered(queue=workload.queue, priority=workload.priority, duration_seconds=workload.duration_s or 0, hold=_holds(workload))


def spec_of(fluxjob: FluxJob) -> Steered:
    """What the spec says."""
    spec = fluxjob.spec
    return Steered(queue=spec.queue, priority=spec.priority, duration_seconds=spec.duration_seconds, hold=spec.hold)


def acknowledgement(spec: Steered) -> str:
    """The note that goes with it: the value of the annotation ``fluxqueue/acknowledged``."""
    return msgspec.json.encode(spec).decode()


def edits_of(fluxjob: FluxJob) -> dict[str, Any]:
    """Fields (of `Steered`) that a person changed and nobody has taken in.

    A FluxJob whose note is missing or cannot be read has been acknowledged as it stands: nothing is guessed.
    """
    now = spec_of(fluxjob)
    try:
        noted = msgspec.json.decode(fluxjob.metadata.annotation(names.ACKNOWLEDGED_ANNOTATION) or "{}", type=Steered)
    except msgspec.MsgspecError:
        return {}
    return {field: getattr(now, field) for field in _FIELDS if getattr(now, field) != getattr(noted, field)}


def wishes_after(workload: Workload | None, fluxjob: FluxJob | None) -> Wishes:
    """The wishes that count now.

    Parameters
    ----------
    workload
        Its row, with the wishes taken in so far; None for one that is new.
    fluxjob
        As it stands; None while there is none.

    Returns
    -------
    Wishes
        ``hold`` is also set where the queue held the workload itself (after repeated failures to start) and nobody released it since.
    """
    before = workload.wishes if workload is not None else NO_WISHES
    held = before.hold or (workload is not None and _holds(workload))
    edits = edits_of(fluxjob) if fluxjob is not None else {}
    return Wishes(
        hold=edits.get("hold", held),
        cancel=fluxjob.spec.cancel if fluxjob is not None else before.cancel,
        queue=edits.get("queue", before.queue),
        priority=edits.get("priority", before.priority),
        duration_s=(edits["duration_seconds"] or None) if "duration_seconds" in edits else before.duration_s,
    )


def taken_in(workload: Workload, fluxjob: FluxJob) -> bool:
    """Whether the row knows every edit of the fields of `Steered`."""
    if not edits_of(fluxjob):
        return True
    return msgspec.structs.replace(wishes_after(workload, fluxjob), cancel=workload.wishes.cancel) == workload.wishes


def refusal(workload: Workload, edits: dict[str, Any]) -> str:
    """Why edits of a workload that holds nodes are not obeyed, for an Event."""
    where = f"{workload.kind} {workload.namespace}/{workload.name}"
    doing = {State.ALLOCATED: "is being started", State.RUNNING: "runs", State.DRAINING: "is stopping"}.get(workload.state, "has ended")
    fields = ", ".join(f"spec.{_camel(field)}" for field in edits)
    remedy = (
        'suspend the Job (kubectl patch job -p \'{"spec":{"suspend":true}}\') to have it matched again'
        if workload.kind == "Job"
        else "only work that waits can be held, moved or given another priority or duration"
    )
    return f"{where} {doing}: {fields} cannot change any more and was put back; {remedy}"


def _holds(workload: Workload) -> bool:
    return workload.wishes.hold or (workload.state is State.PENDING and workload.reason is Reason.HELD and not workload.wishes.cancel)


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
