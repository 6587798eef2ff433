"""``spec.scheduling`` of Jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fluxqueue.api.job_scheduling import JobScheduling, scheduling_problem


def scheduling(**fields: Any) -> JobScheduling:
    return msgspec.convert(fields, JobScheduling)


def gang(**fields: int) -> JobScheduling:
    return scheduling(schedulingPolicy={"gang": fields})


@pytest.mark.parametrize(
    ("own", "parallelism", "pods"),
    [
        pytest.param(gang(minCount=3), 4, 3, id="as it says"),
        pytest.param(gang(), 4, 4, id="all"),
        pytest.param(gang(), None, 1, id="one"),
        pytest.param(gang(), 0, 1, id="none yet"),
        pytest.param(scheduling(schedulingPolicy={"basic": {}}), 4, 0, id="basic"),
        pytest.param(scheduling(), 4, 0, id="no policy"),
    ],
)
def test_a_gang_starts_with_as_many_pods_as_it_says_or_with_all(
    own: JobScheduling, parallelism: int | None, pods: int
) -> None:
    assert own.gang_pods(parallelism) == pods


def test_the_mode_all_takes_no_pod_away_without_the_others() -> None:
    assert scheduling(disruptionMode={"all": {}}).as_one
    assert not scheduling(disruptionMode={"single": {}}).as_one
    assert not scheduling().as_one


def test_a_job_of_which_too_few_pods_are_left_is_one_sentence() -> None:
    assert scheduling_problem(gang(minCount=3), None, 4, 3) == ""
    assert scheduling_problem(gang(), "", 4, 0) == "", "it has no pods, which is another problem"
    assert scheduling_problem(None, "x", 4, 1) == ""
    assert scheduling_problem(gang(), None, 4, 2) == (
        "spec.scheduling.schedulingPolicy.gang needs 4 pods at once, and only 2 run: "
        "set its minCount to 2 or less, since kube-scheduler binds no fewer"
    )


def test_a_job_with_two_pod_groups_is_one_sentence() -> None:
    assert scheduling_problem(scheduling(), "mine", 1, 1) == (
        "spec.scheduling has no effect, because spec.template.spec.schedulingGroup names PodGroup mine: "
        "leave one of them out"
    )
