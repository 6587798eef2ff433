import json
from typing import Any

import msgspec
import pytest
from support.queue_builders import a_workload

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, Reason, State
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, SpecOverrides
from fluxqueue.queue.status.fluxjob_edits import (
    acknowledgement,
    edits_are_stored,
    edits_of,
    expected_spec,
    overrides_after,
    refusal_message,
)

AS_WRITTEN = {"queue": "default", "priority": 0, "duration_seconds": 60, "hold": False}


def fluxjob(workload: Workload, **edited: Any) -> FluxJob:
    """As the queue wrote it for this workload, with a person's edits."""
    note = acknowledgement(expected_spec(workload))
    spec = {**AS_WRITTEN, **{name: getattr(expected_spec(workload), name) for name in AS_WRITTEN}, **edited}
    return FluxJob(
        metadata=ObjectMeta(annotations={names.ACKNOWLEDGED_ANNOTATION: note}), spec=FluxJobSpec(**spec)
    )


def set_by(workload: Workload, edited: FluxJob | None) -> SpecOverrides:
    """What a person set, without where it was read."""
    return msgspec.structs.replace(overrides_after(workload, edited), read=None)


def test_what_the_queue_wrote_is_no_edit() -> None:
    workload = a_workload(queue="gpu", priority=7, duration_s=None)
    assert edits_of(fluxjob(workload)) == {}
    assert overrides_after(workload, fluxjob(workload)) == NO_OVERRIDES


@pytest.mark.parametrize(
    ("edited", "overrides"),
    [
        ({"hold": True}, SpecOverrides(hold=True)),
        ({"queue": "gpu"}, SpecOverrides(queue="gpu")),
        ({"priority": 5, "queue": "gpu"}, SpecOverrides(priority=5, queue="gpu")),
        ({"duration_seconds": 30}, SpecOverrides(duration_s=30)),
        ({"cancel": True}, SpecOverrides(cancel=True)),
    ],
)
def test_an_edit_becomes_an_override_and_nothing_else_does(
    edited: dict[str, Any], overrides: SpecOverrides
) -> None:
    workload = a_workload()
    assert set_by(workload, fluxjob(workload, **edited)) == overrides


def test_stored_overrides_stay_when_something_else_is_edited() -> None:
    workload = a_workload(queue="gpu", overrides=SpecOverrides(queue="gpu"))
    assert set_by(workload, fluxjob(workload, priority=5)) == SpecOverrides(queue="gpu", priority=5)


def test_a_duration_of_zero_removes_the_override() -> None:
    workload = a_workload(duration_s=30, overrides=SpecOverrides(duration_s=30))
    assert set_by(workload, fluxjob(workload, duration_seconds=0)) == NO_OVERRIDES


def test_overrides_outlive_the_fluxjob() -> None:
    overrides = SpecOverrides(hold=True, queue="gpu", priority=5, duration_s=30)
    assert overrides_after(a_workload(overrides=overrides), None) == overrides


def test_an_edit_is_stored_once_the_row_has_it_and_storing_it_again_changes_nothing() -> None:
    before = a_workload()
    edited = fluxjob(before, queue="gpu")
    assert not edits_are_stored(before, edited)
    after = a_workload(queue="gpu", overrides=overrides_after(before, edited))
    assert edits_are_stored(after, edited)
    assert overrides_after(after, edited) == after.overrides


def test_an_edit_that_is_taken_back_before_it_is_acknowledged_is_an_edit() -> None:
    """A release right after a hold leads back to what the annotation says."""
    before = a_workload()
    held = a_workload(overrides=overrides_after(before, fluxjob(before, hold=True)))
    taken_back = fluxjob(before)
    assert not edits_are_stored(held, taken_back)
    released = a_workload(overrides=overrides_after(held, taken_back))
    assert not released.overrides.hold
    assert edits_are_stored(released, taken_back)
    assert overrides_after(released, fluxjob(before, hold=True)).hold, "and held again"


def test_an_acknowledged_edit_is_not_compared_with_where_it_was_read() -> None:
    before = a_workload()
    moved = a_workload(queue="gpu", overrides=overrides_after(before, fluxjob(before, queue="gpu")))
    acknowledged = fluxjob(moved, priority=3)
    assert edits_of(acknowledged, moved.overrides) == {"priority": 3}


def test_an_object_that_changed_since_is_not_mistaken_for_an_edit() -> None:
    """The Job's label names another queue now; the FluxJob is not written yet."""
    written = fluxjob(a_workload(queue="default"))
    assert overrides_after(a_workload(queue="gpu"), written) == NO_OVERRIDES


def test_a_hold_by_the_queue_lasts_until_a_person_releases_it() -> None:
    workload = a_workload(reason=Reason.HELD, message="three pods did not start")
    assert expected_spec(workload).hold
    unaware = fluxjob(a_workload())
    assert overrides_after(workload, unaware).hold, "the FluxJob does not show it yet"
    assert not overrides_after(workload, fluxjob(workload, hold=False)).hold


def test_a_workload_that_is_being_cancelled_is_not_held() -> None:
    workload = a_workload(reason=Reason.HELD, overrides=SpecOverrides(cancel=True))
    assert not expected_spec(workload).hold
    assert overrides_after(workload, fluxjob(workload)) == NO_OVERRIDES


@pytest.mark.parametrize("note", [None, "", "nonsense", '{"queue": 3}', "[]"])
def test_an_annotation_that_cannot_be_read_makes_nothing_an_edit(note: str | None) -> None:
    annotations = {} if note is None else {names.ACKNOWLEDGED_ANNOTATION: note}
    found = FluxJob(metadata=ObjectMeta(annotations=annotations), spec=FluxJobSpec(queue="gpu", hold=True))
    assert edits_of(found) == {}


def test_the_annotation_has_the_four_fields_as_the_spec_has_them() -> None:
    assert json.loads(acknowledgement(expected_spec(a_workload(duration_s=None)))) == {
        "queue": "default",
        "priority": 0,
        "durationSeconds": 0,
        "hold": False,
    }


def test_a_refusal_names_the_object_the_fields_and_what_to_do() -> None:
    message = refusal_message(
        a_workload("lammps", state=State.RUNNING), {"hold": True, "duration_seconds": 5}
    )
    assert message.startswith(
        "Job default/lammps runs: spec.hold, spec.durationSeconds cannot change any more"
    )
    assert "suspend the Job" in message
