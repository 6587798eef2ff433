"""The queue is killed between two effects while a Job starts with fewer pods than it asked for and grows.

The Job ends with all its indexes, no node is overbooked, and nothing is left over. ``FLUXQUEUE_FAULT_SEED``
replays a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.crash_suite import CRASH_OPTIONS, CrashSuite, crash_environment
from support.end_to_end import managed_namespace
from support.pod_oracle import watching_pods

from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue.crashpoints import CrashPoint

SEED = int(os.environ.get("FLUXQUEUE_FAULT_SEED") or random.SystemRandom().randrange(10**9))
POINTS = (
    CrashPoint.RESIZED,
    CrashPoint.CLAIMED,
    CrashPoint.SLOTS_TAKEN,
    CrashPoint.UNGATED,
    CrashPoint.GRANTED,
)


@pytest.mark.timeout(900)
def test_a_job_that_grows_loses_nothing_wherever_the_queue_is_killed(service_folder: Path) -> None:
    print(f"FLUXQUEUE_FAULT_SEED={SEED}")  # noqa: T201  # shown where the test fails: it replays the run
    cluster = InProcessCluster(
        service_folder / "growing", CRASH_OPTIONS, extra_environment=crash_environment(service_folder)
    )
    cluster.start()
    try:
        with watching_pods(cluster) as oracle, managed_namespace(cluster, statements=False) as stage:
            suite = CrashSuite(stage, service_folder, SEED, oracle)
            for point in POINTS:
                suite.crash_at(point, growing=True)
            problems = suite.check()
            assert not problems, "\n".join(problems)
            assert not suite.missed
    finally:
        cluster.destroy()
