"""By how many pods a Job grows, and when it gives pods up."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.queue_builders import EPOCH as NOW

from fluxqueue.queue.model.job_sizes import MOST_GROWN, PATIENCE, REST, JobPods, may_grow_by, next_parallelism

TWO_OF_EIGHT = JobPods(parallelism=2, full=8, least=2, left=8, active=2)
ASKED_FOR_TWO_MORE = JobPods(parallelism=4, full=8, least=2, left=8, active=4, waiting=2, waiting_since=NOW)


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        (TWO_OF_EIGHT, 6),
        (replace(TWO_OF_EIGHT, left=3), 1),
        (replace(TWO_OF_EIGHT, left=1, active=1), 0),
        (replace(TWO_OF_EIGHT, parallelism=8, active=8), 0),
        (replace(TWO_OF_EIGHT, parallelism=9), 0),
        (ASKED_FOR_TWO_MORE, 0),
        (replace(TWO_OF_EIGHT, full=1_000, left=1_000), MOST_GROWN),
    ],
    ids=[
        "to its full size",
        "what is left",
        "nothing is left",
        "full",
        "its user scaled it",
        "pods wait",
        "in steps",
    ],
)
def test_a_job_grows_by_what_it_asked_for_and_can_still_use(pods: JobPods, wanted: int) -> None:
    assert may_grow_by(pods, NOW, None) == wanted


def test_a_job_that_gave_pods_up_rests() -> None:
    assert may_grow_by(TWO_OF_EIGHT, NOW + REST - timedelta(seconds=1), NOW) == 0
    assert may_grow_by(TWO_OF_EIGHT, NOW + REST, NOW) == 6


def test_a_job_grows_by_what_fits() -> None:
    assert [next_parallelism(TWO_OF_EIGHT, fits, NOW) for fits in (0, 3)] == [2, 5]


def test_pods_that_wait_for_too_long_are_given_up() -> None:
    assert next_parallelism(ASKED_FOR_TWO_MORE, 0, NOW + PATIENCE - timedelta(seconds=1)) == 4
    assert next_parallelism(ASKED_FOR_TWO_MORE, 0, NOW + PATIENCE) == 2


def test_a_job_never_goes_below_its_least_number_of_pods() -> None:
    none_placed = replace(ASKED_FOR_TWO_MORE, active=2)
    assert next_parallelism(none_placed, 0, NOW + PATIENCE) == 2


def test_a_job_that_its_user_scaled_down_is_not_scaled_up_again() -> None:
    scaled = replace(ASKED_FOR_TWO_MORE, parallelism=1, active=3, waiting=1)
    assert next_parallelism(scaled, 0, NOW + PATIENCE) == 1
