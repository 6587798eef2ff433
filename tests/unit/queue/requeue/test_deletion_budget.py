"""How many pods of a Job may be deleted before the Job has failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod

from fluxqueue.api.pods import Pod
from fluxqueue.queue.requeue.deletion_budget import DeletionBudget, failures_left

RUNS = a_pod(make_pod("mpi-0").on_node("n0").phase("Running").owned_by("Job"), uid="runs")


def budget_of(limit: int, *pods: Pod) -> tuple[DeletionBudget, JobBuilder]:
    builder = make_job("mpi").indexed(2).with_("spec.backoffLimit", limit)
    job = a_job(builder)
    return DeletionBudget(lambda _uid: job, lambda _uid: pods), builder


def test_pods_that_are_being_deleted_count_before_the_job_has_counted_them() -> None:
    going = a_pod(make_pod("mpi-1").with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"))
    budget, job = budget_of(2, RUNS, going)
    assert budget.left(a_job(job)) == 1


def test_pods_that_are_about_to_be_deleted_count() -> None:
    budget, _ = budget_of(1, RUNS)
    assert [budget.take(RUNS), budget.take(RUNS)] == [True, False]


def test_pods_of_a_job_are_read_once_for_all_of_them() -> None:
    pods, reads = [RUNS] * 100, 0

    def read(_uid: str) -> Iterator[Pod]:
        nonlocal reads
        for pod in pods:
            reads += 1
            yield pod

    job = a_job(make_job("mpi").indexed(100).with_("spec.backoffLimit", 50))
    budget = DeletionBudget(lambda _uid: job, read)
    assert sum(budget.take(pod) for pod in pods) == 50
    assert reads == len(pods)


def test_a_pod_without_a_job_may_always_be_deleted() -> None:
    budget = DeletionBudget(lambda _uid: None, lambda _uid: [])
    assert budget.take(a_pod(make_pod("bare")))
    assert budget.take(a_pod(make_pod("web").owned_by("ReplicaSet", "web")))


@pytest.mark.parametrize(
    ("job", "left"),
    [
        pytest.param(make_job(), 6, id="nothing said"),
        pytest.param(make_job().with_("spec.backoffLimit", 0), 0, id="none may fail"),
        pytest.param(
            make_job().with_("spec.backoffLimit", 3).with_("status.failed", 2), 1, id="some have failed"
        ),
        pytest.param(make_job().with_("status.failed", 9), 0, id="more than may"),
        pytest.param(
            make_job().with_("spec.backoffLimitPerIndex", 2).with_("spec.backoffLimit", 100),
            0,
            id="counted by index",
        ),
    ],
)
def test_how_many_pods_may_be_deleted_before_a_job_fails_by_it(job: JobBuilder, left: int) -> None:
    assert failures_left(a_job(job)) == left
