"""How long the Job controller waits before it replaces pods that failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.controller_bench import subscribed
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs

JOB = make_job("mpi").uid("uid-of-mpi")


class Bench:
    """A Job and one of its pods."""

    def __init__(self, pod: PodBuilder, *, failed: int = 1, suspended: bool = False) -> None:
        self.server = MemoryApi()
        self.caches = Caches(self.server.api)
        self.backoffs = subscribed(JobBackoffs(self.caches, lambda: EPOCH), self.caches)
        self.server.show_in(self.caches)
        self.server.put("jobs", JOB.suspended(suspended).with_("status.failed", failed).build())
        self.server.put("pods", pod.build())

    def waits_s(self) -> float | None:
        """The length of the pause; None if there is none."""
        job = self.caches.jobs.get_by_uid("uid-of-mpi")
        assert job is not None
        until = self.backoffs.until(job)
        return (until - EPOCH).total_seconds() if until is not None else None


def pod(phase: str = "Running") -> PodBuilder:
    return make_pod("mpi-0").uid("mpi-0").owned_by("Job", "mpi").on_node("n0").phase(phase)


@pytest.mark.parametrize(("failed", "seconds"), [(0, 15), (1, 15), (2, 25), (5, 165), (7, 605), (60, 605)])
def test_the_pause_doubles_with_each_failure_up_to_ten_minutes(failed: int, seconds: int) -> None:
    assert Bench(pod("Failed"), failed=failed).waits_s() == seconds


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_pods_that_did_not_fail_cost_no_pause(phase: str) -> None:
    assert Bench(pod(phase)).waits_s() is None


@pytest.mark.parametrize(("suspended", "seconds"), [(False, 15), (True, None)])
def test_a_deleted_pod_counts_as_a_failure_unless_its_job_is_suspended(
    suspended: bool, seconds: int | None
) -> None:
    bench = Bench(pod(), suspended=suspended)
    bench.caches.pods.replace([])
    assert bench.waits_s() == seconds


def test_only_the_moment_of_the_failure_counts() -> None:
    bench = Bench(pod("Failed"))
    later = EPOCH + timedelta(hours=1)
    bench.backoffs._clock = lambda: later
    bench.server.put("pods", pod("Failed").label("seen", "yes").build())
    bench.caches.pods.replace([])
    assert bench.waits_s() == 15
