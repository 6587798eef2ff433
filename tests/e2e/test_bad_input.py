"""An error in an object is reported on that object, and nothing of it is left over."""

import json

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod, make_queue
from support.end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.metadata import PartialObject

RUN_SECONDS = "fluxqueue.local/run-seconds"


class Event(PartialObject, frozen=True):
    reason: str = ""
    message: str = ""
    involved_object: dict[str, str] = msgspec.field(default_factory=dict)


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


def test_the_reason_of_a_request_that_fits_no_node_names_the_resource(stage: Stage) -> None:
    stage.apply(job("huge").cpu("64").build())
    fluxjob = stage.until_reason("huge", "Unsatisfiable")
    assert "cpu" in fluxjob.status.message
    assert stage.job("huge").spec.suspend is True

    def messages() -> list[str]:
        events = stage.items("events", Event)
        return [
            event.message
            for event in events
            if event.reason == "Unsatisfiable" and event.involved_object.get("name") == "huge"
        ]

    assert "cpu" in stage.until("an Event on the Job", messages)[0]


def test_unsatisfiable_work_does_not_delay_other_work(stage: Stage) -> None:
    stage.apply(job("huge").cpu("64").build())
    stage.until_reason("huge", "Unsatisfiable")
    stage.apply(job("small").build())
    stage.until_state("small", State.COMPLETED)


def test_a_quantity_out_of_range_is_refused_with_its_field_and_delays_no_other_work(stage: Stage) -> None:
    stage.apply(job("absurd").cpu("19P").build())
    stage.apply(job("small").build())
    message = stage.until_reason("absurd", "InvalidRequest").status.message
    assert "container 'main' requests 19P cpu" in message
    stage.until_state("small", State.COMPLETED)


def test_work_of_an_unknown_queue_waits_until_the_queue_exists(stage: Stage) -> None:
    stage.apply(job("lost").label(names.QUEUE_LABEL, "nowhere").build())
    fluxjob = stage.until_reason("lost", "UnknownQueue")
    assert "nowhere" in fluxjob.status.message
    assert stage.job("lost").spec.suspend is True


def test_an_unknown_queue_is_told_at_apply_with_the_one_that_may_be_meant(stage: Stage) -> None:
    """The cluster is as the chart comes: pods are bound by its own scheduler,
    and the webhook has the rights of the chart.
    """

    def says(queue: str) -> str:
        document = job("typo").namespace(stage.namespace).label(names.QUEUE_LABEL, queue).build()
        return str(stage.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(document)).stderr)

    name = f"night-{stage.namespace}"
    stage.kubectl("create", "-f", "-", stdin=json.dumps(make_queue(name)))
    try:
        stage.until("the queue is known", lambda: says(name) == "", 60, lambda: says(name))
        warning = stage.until("a warning", lambda: says(f"nihgt-{stage.namespace}"))
        assert (
            f"there is no queue 'nihgt-{stage.namespace}', so it waits until there is: did you mean {name}?"
            in warning
        )
        stage.kubectl("delete", "fluxqueue", name)
        stage.until("the queue is known to be gone", lambda: f"there is no queue {name!r}" in says(name), 60)
    finally:
        stage.kubectl("delete", "fluxqueue", name, "--ignore-not-found")


def test_an_invalid_duration_is_refused_with_the_name_of_its_field(stage: Stage) -> None:
    document = job("soon").namespace(stage.namespace).annotation(names.DURATION_ANNOTATION, "soon").build()
    done = stage.kubectl("apply", "-f", "-", stdin=json.dumps(document), check=False)
    assert done.returncode != 0
    assert names.DURATION_ANNOTATION in done.stderr
    assert "'soon' is not a duration" in done.stderr


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("no name", "InvalidRequest", "'no name' is no name of a FluxReservation"),
        ("nowhere", "ReservationNotAllowed", "there is no FluxReservation 'nowhere'"),
    ],
)
def test_a_reservation_that_cannot_be_used_is_named_and_delays_no_other_work(
    stage: Stage, name: str, reason: str, words: str
) -> None:
    stage.apply(job("lost").annotation(names.RESERVATION_ANNOTATION, name).build())
    assert words in stage.until_reason("lost", reason).status.message
    stage.apply(job("small").build())
    stage.until_state("small", State.COMPLETED)


def test_parallelism_zero_waits_until_it_is_raised(stage: Stage) -> None:
    stage.apply(job("none").pods(0, 2).build())
    fluxjob = stage.until_reason("none", "UserSuspended")
    assert "parallelism" in fluxjob.status.message
    stage.kubectl("patch", "job", "none", "-p", '{"spec":{"parallelism":2}}')
    stage.until_state("none", State.COMPLETED)
    assert wrong(stage.rows()) == []


def test_replicas_zero_requests_nothing(stage: Stage) -> None:
    pod = make_pod("idle").cpu("1").build()
    template = {"metadata": {"labels": {"app": "idle"}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "idle"}}, "template": template}
    stage.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "idle"}, "spec": spec})
    stage.kubectl("scale", "deployment", "idle", "--replicas=1")
    stage.until("its pod runs", lambda: stage.rows()[0].state == State.RUNNING)
    stage.kubectl("scale", "deployment", "idle", "--replicas=0")
    stage.until_nothing_left()


def test_a_job_suspended_by_its_user_is_resumed_only_by_the_user(stage: Stage) -> None:
    stage.apply(job("mine").suspended().build())
    stage.until_reason("mine", "UserSuspended")
    assert stage.fluxion_jobs() == []
    stage.kubectl("patch", "job", "mine", "-p", '{"spec":{"suspend":false}}')
    stage.until("the Job completes", lambda: stage.job("mine").finished, 60)


@pytest.mark.parametrize("when", ["queued", "running"])
@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deleted_job_leaves_nothing(when: str, cascade: str, stage: Stage) -> None:
    blocker = job("blocker", "forever").cpu("8").indexed(8).build()
    if when == "queued":
        stage.apply(blocker)
        stage.until_state("blocker", State.RUNNING)
    stage.apply(job("victim", "forever").indexed(4).build())
    if when == "queued":
        stage.until_reason("victim", "WaitingForNodes")
    else:
        stage.until_state("victim", State.RUNNING)
    stage.kubectl("delete", "job", "victim", f"--cascade={cascade}")
    if when == "queued":
        stage.kubectl("delete", "job", "blocker")
    stage.until_nothing_left()


def test_a_job_deleted_as_soon_as_it_is_applied_leaves_nothing(stage: Stage) -> None:
    """Each round deletes at another time: during intake, match or release."""
    for number in range(12):
        stage.apply(job(f"brief-{number}", "forever").indexed(2).build())
        stage.kubectl("delete", "job", f"brief-{number}", "--wait=false")
    stage.until_nothing_left()


def test_a_job_edited_while_it_waits_is_matched_with_its_new_request(stage: Stage) -> None:
    stage.apply(job("blocker", "forever").cpu("8").indexed(8).build())
    stage.until_state("blocker", State.RUNNING)
    stage.apply(job("edited").cpu("8").pods(4, 4).build())
    stage.until_reason("edited", "WaitingForNodes")
    stage.kubectl("patch", "job", "edited", "-p", '{"spec":{"parallelism":2}}')
    stage.until(
        "the FluxJob asks for two",
        lambda: (fluxjob_now := stage.row("edited").fluxjob) is not None and fluxjob_now.spec.pods == 2,
    )
    stage.kubectl("delete", "job", "blocker")
    row = stage.until_state("edited", State.COMPLETED, 60)
    assert len(row.hosts) == 2
    assert wrong([row]) == []
