"""Tells edits that a person made in a FluxJob from what the queue wrote there itself.

Both write the same fields of the spec: a person moves a workload to another queue, and the queue writes the
queue that the Job's label names now. So the queue records in an annotation which spec it has read, in the
same write as the spec. A field that differs from the annotation is a new edit. It is stored as an override in
the workload's row, and then the annotation is updated. An edit that arrives in between can lead back to what
the annotation says, such as a release right after a hold. So the row also has the spec in which the edit was
found, and until the annotation is updated it is that which the next edit differs from.

Overrides live in the row and not in the FluxJob, because a FluxJob that is deleted is created again. An
override takes precedence over the object. A duration of 0 removes the override, since a FluxJob shows 0 where
no duration is given.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, ReadSpec, SpecOverrides

__all__ = [
    "EditableSpec",
    "acknowledgement",
    "editable_spec",
    "edits_are_stored",
    "edits_of",
    "expected_spec",
    "overrides_after",
    "refusal_message",
]


class EditableSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The part of a FluxJob's spec that a person may edit; a duration of 0 is none."""

    queue: str
    priority: int
    duration_seconds: int
    hold: bool


_FIELDS = tuple(field.name for field in msgspec.structs.fields(EditableSpec))


def expected_spec(workload: Workload) -> EditableSpec:
    """Return what the spec should be by the workload's row."""
    return EditableSpec(
        queue=workload.queue,
        priority=workload.priority,
        duration_seconds=workload.duration_s or 0,
        hold=_is_held(workload),
    )


def editable_spec(fluxjob: FluxJob) -> EditableSpec:
    """Return what the spec is."""
    spec = fluxjob.spec
    return EditableSpec(
        queue=spec.queue, priority=spec.priority, duration_seconds=spec.duration_seconds, hold=spec.hold
    )


def acknowledgement(spec: EditableSpec) -> str:
    """Return the value of the annotation ``fluxqueue/acknowledged`` that goes with a spec."""
    return msgspec.json.encode(spec).decode()


def edits_of(fluxjob: FluxJob, overrides: SpecOverrides = NO_OVERRIDES) -> dict[str, Any]:
    """Return the fields (of `EditableSpec`) that a person changed since the queue read or wrote them, with
    their values.

    A FluxJob whose annotation is missing or cannot be read counts as acknowledged: nothing is guessed.
    """
    spec = editable_spec(fluxjob)
    acknowledged = _acknowledgement_of(fluxjob)
    read = overrides.read
    known = read.spec if read is not None and read.acknowledged == acknowledged else acknowledged
    try:
        before = msgspec.json.decode(known or "{}", type=EditableSpec)
    except msgspec.MsgspecError:
        return {}
    return {
        field: getattr(spec, field) for field in _FIELDS if getattr(spec, field) != getattr(before, field)
    }


def overrides_after(workload: Workload | None, fluxjob: FluxJob | None) -> SpecOverrides:
    """Return the overrides that apply now.

    Parameters
    ----------
    workload
        Its row, with the overrides stored so far; None for a new one.
    fluxjob
        As it is now; None if there is none.

    Returns
    -------
    SpecOverrides
        ``hold`` is also set if the queue held the workload itself (after repeated failures to start) and
        nobody released it since.
    """
    before = workload.overrides if workload is not None else NO_OVERRIDES
    held = before.hold or (workload is not None and _is_held(workload))
    edits = edits_of(fluxjob, before) if fluxjob is not None else {}
    found = (
        ReadSpec(acknowledgement(editable_spec(fluxjob)), _acknowledgement_of(fluxjob))
        if fluxjob is not None and edits
        else before.read
    )
    return SpecOverrides(
        hold=edits.get("hold", held),
        cancel=fluxjob.spec.cancel if fluxjob is not None else before.cancel,
        queue=edits.get("queue", before.queue),
        priority=edits.get("priority", before.priority),
        duration_s=(edits["duration_seconds"] or None) if "duration_seconds" in edits else before.duration_s,
        read=found,
    )


def edits_are_stored(workload: Workload, fluxjob: FluxJob) -> bool:
    """True if the row has every edit of the fields of `EditableSpec`."""
    stored = workload.overrides
    if not edits_of(fluxjob, stored):
        return True
    return (
        msgspec.structs.replace(overrides_after(workload, fluxjob), cancel=stored.cancel, read=stored.read)
        == stored
    )


def refusal_message(workload: Workload, edits: dict[str, Any]) -> str:
    """Return why edits of a workload that holds nodes are refused, for an Event."""
    activity = {
        State.ALLOCATED: "is being started",
        State.RUNNING: "runs",
        State.DRAINING: "is stopping",
    }.get(workload.state, "has ended")
    fields = ", ".join(f"spec.{_camel(field)}" for field in edits)
    remedy = (
        'suspend the Job (kubectl patch job -p \'{"spec":{"suspend":true}}\') to have it planned again'
        if workload.kind == "Job"
        else "only work that waits can be held, moved or given another priority or duration"
    )
    return f"{workload.ref} {activity}: {fields} cannot change any more and was reverted; {remedy}"


def _acknowledgement_of(fluxjob: FluxJob) -> str:
    return fluxjob.metadata.annotation(names.ACKNOWLEDGED_ANNOTATION) or ""


def _is_held(workload: Workload) -> bool:
    return workload.overrides.hold or (
        workload.state is State.PENDING and workload.reason is Reason.HELD and not workload.overrides.cancel
    )


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
