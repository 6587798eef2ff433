"""When work is warned and ended, and how it ends then."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.queue_builders import EPOCH as NOW
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import EnforceDuration
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.time_limits import (
    ending_within_limit,
    is_over_time_limit,
    limit_times,
    over_limit_message,
)

RULES = EnforceDuration(enabled=True, grace_seconds=60)
LIMITED = RequeueState(time_limit=NOW + timedelta(hours=1))


def running(**changes: Any) -> Any:
    return a_workload(
        **{"state": State.RUNNING, "jobid": 7, "started_at": NOW, "duration_s": 3600, **changes}
    )


def test_work_is_warned_the_grace_before_it_is_ended() -> None:
    times = limit_times(running(), RULES)
    assert times is not None
    assert (times.warn_at, times.end_at) == (NOW + timedelta(seconds=3540), NOW + timedelta(hours=1))


def test_work_shorter_than_twice_the_grace_is_warned_at_its_half() -> None:
    times = limit_times(running(duration_s=20), RULES)
    assert times is not None
    assert times.warn_at == NOW + timedelta(seconds=10)


def test_without_a_grace_there_is_no_warning() -> None:
    times = limit_times(running(), EnforceDuration(enabled=True, grace_seconds=0))
    assert times is not None
    assert times.warn_at is None


@pytest.mark.parametrize(
    "changes",
    [
        {"started_at": None, "state": State.ALLOCATED},
        {"duration_s": None},
        {"state": State.DRAINING, "reason": Reason.PREEMPTED},
    ],
    ids=["not started", "without an end", "evicted"],
)
def test_some_work_has_no_limit(changes: dict[str, Any]) -> None:
    assert limit_times(running(**changes), RULES) is None


@pytest.mark.parametrize("mode", [ReleaseMode.POD, ReleaseMode.GROUP])
def test_pods_and_groups_have_their_limit_while_they_are_evicted(mode: ReleaseMode) -> None:
    evicted = {"state": State.DRAINING, "reason": Reason.PREEMPTED, "release_mode": mode}
    assert limit_times(running(**evicted), RULES) == limit_times(running(), RULES)


@pytest.mark.parametrize("rules", [None, EnforceDuration()])
def test_a_queue_that_does_not_ask_for_it_ends_nothing(rules: EnforceDuration | None) -> None:
    assert limit_times(running(), rules) is None


def test_a_queue_may_end_only_work_that_stated_its_duration() -> None:
    rules = EnforceDuration(enabled=True, only_stated=True)
    assert limit_times(running(duration_assumed=True), rules) is None
    assert limit_times(running(duration_assumed=False), rules) is not None
    assert limit_times(running(duration_assumed=True), RULES) is not None


def test_a_limit_of_an_earlier_start_does_not_count() -> None:
    assert is_over_time_limit(running(requeue_state=LIMITED))
    assert not is_over_time_limit(running(requeue_state=LIMITED, started_at=NOW + timedelta(hours=2)))


def test_ended_work_has_the_outcome_time_limit_whatever_its_pods_say() -> None:
    job, pod = running(requeue_state=LIMITED), running(requeue_state=LIMITED, kind="Pod")
    for workload, state in ((job, State.FAILED), (job, State.CANCELLED), (pod, State.COMPLETED)):
        ending = ending_within_limit(workload, state, Outcome.FAILED, "")
        assert (ending.state, ending.outcome, ending.message) == (
            State.FAILED,
            Outcome.TIME_LIMIT,
            over_limit_message(workload),
        )


def test_a_job_that_completed_all_the_same_succeeded() -> None:
    ending = ending_within_limit(running(requeue_state=LIMITED), State.COMPLETED, Outcome.SUCCEEDED, "")
    assert (ending.state, ending.outcome) == (State.COMPLETED, Outcome.SUCCEEDED)


def test_other_work_ends_as_it_is_seen_to() -> None:
    ending = ending_within_limit(running(), State.FAILED, Outcome.FAILED, "the Job failed")
    assert (ending.outcome, ending.message) == (Outcome.FAILED, "the Job failed")


def test_an_assumed_duration_is_named_as_such() -> None:
    assert "3600 s, the default of its queue" in over_limit_message(running(duration_assumed=True))


def test_work_that_was_started_with_fewer_pods_may_run_for_longer() -> None:
    jobspec = jobspec_of("default/a", [SizedPods({"cpu": Decimal(1)}, 8)], duration_s=3600, min_pods=2)
    small = running(jobspec=jobspec, pods=8, hosts="n[1-4]")
    times = limit_times(small, RULES)
    assert times is not None
    assert times.end_at == NOW + timedelta(hours=2)
    assert "7200 s with 4 of 8 pods" in over_limit_message(small)


def test_work_of_years_with_few_of_its_pods_has_a_limit_that_a_date_can_say() -> None:
    """It was beyond the year 9999, and whoever asked for its limit failed."""
    jobspec = jobspec_of(
        "default/a", [SizedPods({"cpu": Decimal(1)}, 2_000)], duration_s=315_360_000, min_pods=1
    )
    times = limit_times(running(jobspec=jobspec, pods=2_000, duration_s=315_360_000, hosts="n1"), RULES)
    assert times is not None
    assert times.end_at == NOW + timedelta(seconds=3_153_600_000)


def test_the_end_of_work_says_what_it_gave_back() -> None:
    given = RequeueState(
        given_back=GivenBack(jobid=7, ranks=(1,), stop_at=NOW, message="1 pod ends of the 2")
    )
    ended = [
        ending_within_limit(
            running(requeue_state=given, jobid=jobid), State.COMPLETED, Outcome.SUCCEEDED, message
        ).message
        for jobid, message in ((7, ""), (7, "the Job failed"), (8, ""))
    ]
    assert ended == ["1 pod ends of the 2", "the Job failed", ""]
