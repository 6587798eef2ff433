import json
from typing import Any

import pytest
from queue_builders import a_workload

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, Reason, State
from fluxqueue.api.objects import ObjectMeta
from fluxqueue.queue.records import NO_WISHES, Wishes, Workload
from fluxqueue.queue.steering import acknowledgement, edits_of, refusal, steered, taken_in, wishes_after

AS_WRITTEN = {"queue": "default", "priority": 0, "duration_seconds": 60, "hold": False}


def fluxjob(workload: Workload, **edited: Any) -> FluxJob:
    """As the queue wrote it for this workload, with a person's edits on top."""
    note = acknowledgement(steered(workload))
    said = {**AS_WRITTEN, **{name: getattr(steered(workload), name) for name in AS_WRITTEN}, **edited}
    return FluxJob(metadata=ObjectMeta(annotations={names.ACKNOWLEDGED_ANNOTATION: note}), spec=FluxJobSpec(**said))


def test_what_the_queue_wrote_is_no_edit() -> None:
    workload = a_workload(queue="gpu", priority=7, duration_s=None)
    assert edits_of(fluxjob(workload)) == {}
    assert wishes_after(workload, fluxjob(workload)) == NO_WISHES


@pytest.mark.parametrize(
    ("edited", "wishes"),
    [
        ({"hold": True}, Wishes(hold=True)),
        ({"queue": "gpu"}, Wishes(queue="gpu")),
        ({"priority": 5, "queue": "gpu"}, Wishes(priority=5, queue="gpu")),
        ({"duration_seconds": 30}, Wishes(duration_s=30)),
        ({"cancel": True}, Wishes(cancel=True)),
    ],
)
def test_an_edit_is_a_wish_and_nothing_else_is(edited: dict[str, Any], wishes: Wishes) -> None:
    workload = a_workload()
    assert wishes_after(workload, fluxjob(workload, **edited)) == wishes


def test_wishes_taken_in_before_stay_when_something_else_is_edited() -> None:
    workload = a_workload(queue="gpu", wishes=Wishes(queue="gpu"))
    assert wishes_after(workload, fluxjob(workload, priority=5)) == Wishes(queue="gpu", priority=5)


def test_a_duration_of_nothing_takes_the_wish_back() -> None:
    workload = a_workload(duration_s=30, wishes=Wishes(duration_s=30))
    assert wishes_after(workload, fluxjob(workload, duration_seconds=0)) == NO_WISHES


def test_wishes_outlive_the_fluxjob() -> None:
    wishes = Wishes(hold=True, queue="gpu", priority=5, duration_s=30)
    assert wishes_after(a_workload(wishes=wishes), None) == wishes


def test_an_edit_is_taken_in_once_the_row_has_it_and_taking_it_in_again_changes_nothing() -> None:
    before = a_workload()
    edited = fluxjob(before, queue="gpu")
    assert not taken_in(before, edited)
    after = a_workload(queue="gpu", wishes=wishes_after(before, edited))
    assert taken_in(after, edited)
    assert wishes_after(after, edited) == after.wishes


def test_an_object_that_changed_since_is_not_mistaken_for_an_edit() -> None:
    """The Job's label names another queue by now; the FluxJob has not been written yet."""
    written = fluxjob(a_workload(queue="default"))
    assert wishes_after(a_workload(queue="gpu"), written) == NO_WISHES


def test_what_the_queue_held_after_failures_is_held_until_a_person_lets_it_go() -> None:
    workload = a_workload(reason=Reason.HELD, message="three pods did not start")
    assert steered(workload).hold
    unaware = fluxjob(a_workload())
    assert wishes_after(workload, unaware).hold, "the FluxJob does not say so yet"
    assert not wishes_after(workload, fluxjob(workload, hold=False)).hold


def test_a_workload_that_is_being_cancelled_is_not_held() -> None:
    workload = a_workload(reason=Reason.HELD, wishes=Wishes(cancel=True))
    assert not steered(workload).hold
    assert wishes_after(workload, fluxjob(workload)) == NO_WISHES


@pytest.mark.parametrize("note", [None, "", "nonsense", '{"queue": 3}', "[]"])
def test_a_note_that_cannot_be_read_makes_nothing_an_edit(note: str | None) -> None:
    annotations = {} if note is None else {names.ACKNOWLEDGED_ANNOTATION: note}
    found = FluxJob(metadata=ObjectMeta(annotations=annotations), spec=FluxJobSpec(queue="gpu", hold=True))
    assert edits_of(found) == {}


def test_the_note_holds_the_four_fields_as_the_spec_has_them() -> None:
    assert json.loads(acknowledgement(steered(a_workload(duration_s=None)))) == {
        "queue": "default",
        "priority": 0,
        "durationSeconds": 0,
        "hold": False,
    }


def test_a_refusal_names_the_object_the_fields_and_what_to_do() -> None:
    said = refusal(a_workload("lammps", state=State.RUNNING), {"hold": True, "duration_seconds": 5})
    assert said.startswith("Job default/lammps runs: spec.hold, spec.durationSeconds cannot change any more")
    assert "suspend the Job" in said
