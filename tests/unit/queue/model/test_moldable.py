"""With how many pods moldable work is started, how long it takes with them, and what its Job looks like."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.builders import JobBuilder, make_job
from support.queue_builders import EPOCH as NOW
from support.queue_builders import a_job, a_workload, an_allocation

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.model.moldable import (
    GROWTH_PRIORITY,
    at_full_size,
    duration_of_growth_s,
    growth_of,
    is_moldable,
    min_pods_in,
    parallelism_at_start,
    planned_duration_s,
    smallest,
    started_pods,
    with_pods,
)
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.time_limits import over_limit_message

STARTED = "fluxqueue/started-pods"


def jobspec(pods: int = 8, least: int = 2, **placement: Any) -> str:
    rules = PlacementRules(**placement)
    return jobspec_of(
        "default/a", [SizedPods({"cpu": Decimal(1)}, pods)], duration_s=600, placement=rules, min_pods=least
    )


def workload(**changes: Any) -> Any:
    return a_workload(**{"jobspec": jobspec(), "pods": 8, "duration_s": 600, **changes})


def running(hosts: str, **changes: Any) -> Any:
    return workload(state=State.RUNNING, hosts=hosts, started_at=NOW, jobid=7, **changes)


@pytest.mark.parametrize("least", [0, 8, 9])
def test_work_that_needs_all_its_pods_is_not_moldable(least: int) -> None:
    assert min_pods_in(jobspec(8, least)) == 0
    assert jobspec(8, least) == jobspec(8, 0)


def test_the_least_number_of_pods_is_in_the_jobspec() -> None:
    assert min_pods_in(jobspec()) == 2
    assert is_moldable(workload())
    assert not is_moldable(a_workload())


def test_work_that_waits_asks_for_all_its_pods() -> None:
    assert started_pods(workload(hosts="n[1-3]")) == 8


def test_work_was_started_with_the_pods_that_have_a_node() -> None:
    assert started_pods(running("n[1-3]")) == 3
    assert started_pods(running("none.invalid,n[1-3]")) == 3, "an index that was done before has no node"
    assert started_pods(running("n[1-8]")) == 8
    assert started_pods(running("")) == 8


def test_work_with_fewer_pods_takes_longer() -> None:
    assert planned_duration_s(running("n[1-3]")) == 1_600
    assert planned_duration_s(running("n[1-8]")) == 600
    assert planned_duration_s(running("n[1-3]", duration_s=None)) is None


def test_work_whose_pods_go_on_in_no_slot_of_its_own_is_planned_with_its_least() -> None:
    """It gave slots back, and keeps the pods by which it grew."""
    given = GivenBack(jobid=7, ranks=(3, 4, 5, 6, 7), stop_at=NOW, message="a gave 5 of its 9 pods back")
    smaller = running("n[1-8]", jobspec=jobspec(8, 4), requeue_state=RequeueState(given_back=given))
    assert (started_pods(smaller), planned_duration_s(smaller)) == (3, 1_200)
    assert "reached its time limit of 1200 s with 4 of 8 pods" in over_limit_message(smaller)


def test_a_pod_by_which_a_job_grows_is_planned_as_long_as_the_job_or_its_own_work() -> None:
    soon = replace(an_allocation(["n1"]), end=NOW + timedelta(seconds=100))
    late = replace(soon, end=NOW + timedelta(seconds=1_600))
    assert [duration_of_growth_s(running("n1"), each, NOW) for each in (soon, late)] == [600, 1_600]
    assert duration_of_growth_s(running("n1", duration_s=None), late, NOW) is None


def test_growth_comes_behind_all_other_work() -> None:
    grown = growth_of(running("n1", priority=10), replace(an_allocation(["n1"]), end=None), NOW)
    assert (grown.priority, grown.duration_s) == (GROWTH_PRIORITY, 600)


@pytest.mark.parametrize(
    "placement",
    [{}, {"topology": TopologyRequest(required="rack")}, {"topology": TopologyRequest(preferred="rack")}],
    ids=str,
)
def test_the_request_for_fewer_pods_is_that_of_a_job_of_fewer_pods(placement: dict[str, Any]) -> None:
    wanted = json.loads(jobspec(3, 0, **placement))
    assert json.loads(with_pods(jobspec(8, 2, **placement), 3))["resources"] == wanted["resources"]
    assert json.loads(smallest(jobspec(8, 3, **placement)))["resources"] == wanted["resources"]
    assert smallest(jobspec(8, 0)) == jobspec(8, 0)


def job(parallelism: int, completions: int = 8, started: str | None = None) -> JobBuilder:
    builder = make_job("a").indexed(completions).with_("spec.parallelism", parallelism).suspended()
    return builder if started is None else builder.annotation(STARTED, started)


@pytest.mark.parametrize(
    ("was", "hosts", "parallelism"),
    [
        (job(8), 3, 3),
        (job(8), 8, 8),
        (job(3, started="3"), 8, 8),
        (job(6, started="3"), 6, 6),
    ],
    ids=["fewer", "all", "all, after fewer", "fewer again, after it grew"],
)
def test_a_moldable_job_is_released_with_as_many_pods_as_have_a_node(
    was: JobBuilder, hosts: int, parallelism: int
) -> None:
    allocation = an_allocation([f"n{number}" for number in range(hosts)])
    assert parallelism_at_start(a_job(was), workload(), allocation) == parallelism


def test_a_job_that_is_no_longer_moldable_gets_its_parallelism_back() -> None:
    whole, eight = workload(jobspec=jobspec(8, 0)), an_allocation([f"n{number}" for number in range(8)])
    assert parallelism_at_start(a_job(job(3, started="3")), whole, eight) == 8
    assert parallelism_at_start(a_job(job(8)), whole, eight) is None


def test_a_job_that_was_started_with_fewer_is_read_as_its_user_wrote_it() -> None:
    assert at_full_size(a_job(job(3, started="3"))).spec.parallelism == 8


@pytest.mark.parametrize(
    "was",
    [job(3), job(0, started="3"), job(8, started="3"), make_job("a").pods(2, 8).annotation(STARTED, "2")],
    ids=["its user's", "scaled to zero", "full", "without indexes"],
)
def test_any_other_job_is_read_as_it_is(was: JobBuilder) -> None:
    read = a_job(was)
    assert at_full_size(read) is read
