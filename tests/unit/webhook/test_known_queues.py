"""A queue that does not exist is told to the person who names it, whichever scheduler binds pods."""

from __future__ import annotations

import pytest
from support.admission import admit
from support.builders import REPLICASET_CONTROLLER, make_job, make_minicluster, make_pod, make_review

from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionSettings
from fluxqueue.webhook.known_queues import KnownQueues
from fluxqueue.webhook.reviews import read_review
from fluxqueue.webhook.validation import validate

KNOWN = AdmissionSettings(queues=KnownQueues(lambda: frozenset({"night", "gpu"})))


def test_a_person_who_names_no_queue_that_exists_is_told_what_may_be_meant() -> None:
    admitted = admit(make_job("j").label("fluxqueue/queue", "nigth"), settings=KNOWN)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    (warning,) = admitted.decision.warnings
    sentence = (
        "label fluxqueue/queue: there is no queue 'nigth', so it waits until there is: did you mean night?"
    )
    assert warning == f"Job default/j: {sentence} kubectl fluxqueue queues lists them"
    (warning,) = admit(make_pod().label("fluxqueue/queue", "Night"), settings=KNOWN).decision.warnings
    assert "there is no queue 'Night', so it waits until there is: did you mean night?" in warning


def test_names_of_other_queues_are_left_to_those_who_may_read_them() -> None:
    warning = admit(make_job("j").label("fluxqueue/queue", "x"), settings=KNOWN).decision.warnings[0]
    assert warning.endswith(
        "there is no queue 'x', so it waits until there is: kubectl fluxqueue queues lists them"
    )


@pytest.mark.parametrize("queue", ["night", "default", ""])
def test_queues_that_exist_get_no_warning(queue: str) -> None:
    assert admit(make_job().label("fluxqueue/queue", queue), settings=KNOWN).decision.warnings == ()


def test_nothing_is_said_about_queues_that_are_not_known_yet() -> None:
    assert (
        admit(make_job().label("fluxqueue/queue", "nigth"), settings=AdmissionSettings()).decision.warnings
        == ()
    )


def test_objects_of_controllers_and_of_others_get_no_warning() -> None:
    pod = make_pod().owned_by("ReplicaSet").label("fluxqueue/queue", "nigth")
    assert admit(pod, user=REPLICASET_CONTROLLER, settings=KNOWN).decision.warnings == ()
    opted_out = make_job().label("fluxqueue/managed", "false").label("fluxqueue/queue", "nigth")
    assert admit(opted_out, settings=KNOWN).decision.warnings == ()


def test_the_queue_of_a_minicluster_is_a_field() -> None:
    def warnings(queue: str, settings: AdmissionSettings) -> tuple[str, ...]:
        return validate(
            read_review(make_review(make_minicluster("flux", queue=queue)).body()), settings
        ).warnings

    (warning,) = warnings("nigth", KNOWN)
    assert warning.startswith(
        "spec.queue: there is no queue 'nigth', so it waits until there is: did you mean night?"
    )
    assert warnings("night", KNOWN) == warnings("", KNOWN) == warnings("nigth", AdmissionSettings()) == ()
