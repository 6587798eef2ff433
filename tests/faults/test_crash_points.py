"""Queue and scheduler are killed at crash points between two effects, under load: nothing is lost, booked
twice or left over.

``FLUXQUEUE_FAULT_SEED`` replays a run. A failed test prints the seed. ``FLUXQUEUE_FAULT_POINTS=all`` uses
every point (``make test-faults``), values with commas between them these points of the queue; otherwise some
are drawn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crash_suite import (
    ALL_POINTS,
    AT_START,
    CRASH_OPTIONS,
    ELSEWHERE,
    AnyPoint,
    CrashSuite,
    Kill,
    crash_environment,
)
from support.end_to_end import managed_namespace
from support.pod_oracle import watching_pods

from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue.crashpoints import CrashPoint
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint

SEED = int(os.environ.get("FLUXQUEUE_FAULT_SEED") or random.SystemRandom().randrange(10**9))
POINTS = os.environ.get("FLUXQUEUE_FAULT_POINTS", "")
ALL = POINTS == "all"
DRAWN = 8
IN_A_WAVE = 5


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    folder = service_folder / "crashes"
    cluster = InProcessCluster(folder, CRASH_OPTIONS, extra_environment=crash_environment(service_folder))
    cluster.start()
    yield cluster
    cluster.destroy()


def chosen() -> list[AnyPoint]:
    """Return every point, or some of each kind, in an order drawn from the seed."""
    drawing = random.Random(SEED)
    if ALL:
        return drawing.sample(ALL_POINTS, len(ALL_POINTS))
    if POINTS:
        return [CrashPoint(point) for point in POINTS.split(",")]
    at_start = drawing.sample(sorted(AT_START), 2)
    running = drawing.sample(sorted(set(CrashPoint) - AT_START - ELSEWHERE), DRAWN - 2)
    binding = drawing.sample(list(SchedulerCrashPoint), 2)
    return drawing.sample([*at_start, *running, *binding], DRAWN + 2)


@pytest.mark.timeout(1800)
def test_nothing_is_lost_wherever_queue_or_scheduler_are_killed(
    cluster: InProcessCluster, service_folder: Path
) -> None:
    print(f"FLUXQUEUE_FAULT_SEED={SEED}")  # noqa: T201  # shown where the test fails: it replays the run
    points = chosen()
    with watching_pods(cluster) as oracle, managed_namespace(cluster, statements=False) as stage:
        suite = CrashSuite(stage, service_folder, SEED, oracle)
        for start in range(0, len(points), IN_A_WAVE):
            suite.apply_some(4)
            for point in points[start : start + IN_A_WAVE]:
                suite.crash_at(point)
            if ALL and not start:
                suite.freeze()
                suite.kill(Kill.SCHEDULER)
                suite.kill(Kill.API_SERVER)
            problems = suite.check()
            assert not problems, "\n".join(problems)
        assert oracle.bound > 0
    assert len(suite.crashes) >= len(points) * 3 // 4, f"not reached in time: {dict(suite.missed)}"
    slowest = max(suite.crashes, key=lambda crash: crash.recovery_s)
    print(  # noqa: T201  # the figures of docs/reference/crash-tests.md
        f"{len(suite.crashes)} crashes, recovered within {slowest.recovery_s:.1f} s ({slowest.point}); "
        f"missed: {dict(suite.missed)}"
    )
