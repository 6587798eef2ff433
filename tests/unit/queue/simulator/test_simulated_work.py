"""Jobs of a trace as workloads."""

from __future__ import annotations

from datetime import timedelta

from fluxqueue.queue.simulator.simulated_work import EPOCH, node_name, prediction_key, time_at, workload_of
from fluxqueue.queue.simulator.traces import TraceJob

JOB = TraceJob(7, 30, 4, 100, 600, account="physics", user="ann")


def test_a_job_is_a_workload_of_its_size_and_duration() -> None:
    workload = workload_of(JOB)
    assert (workload.id, workload.pods, workload.duration_s, workload.tried_s) == (7, 4, 600, 600)
    assert workload.submitted_at == time_at(30) == EPOCH + timedelta(seconds=30)
    assert (workload.submitted_by, workload.account) == ("ann", "physics")


def test_a_prediction_is_what_it_is_tried_with() -> None:
    workload = workload_of(JOB, 120)
    assert (workload.duration_s, workload.tried_s) == (600, 120)


def test_run_times_are_those_of_user_account_and_queue() -> None:
    assert prediction_key(JOB) == ("ann", "physics", "default")


def test_names_of_nodes_are_in_order() -> None:
    assert sorted(map(node_name, (10, 9, 100))) == [node_name(number) for number in (9, 10, 100)]
