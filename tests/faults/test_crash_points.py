"""The queue is killed at named places between two effects, under load: nothing is lost, nothing is booked twice, nothing is left.

``FLUXQUEUE_FAULT_SEED`` replays a run; the seed is printed where a test fails. ``FLUXQUEUE_FAULT_POINTS=all`` strikes at every point
(``make test-faults``), otherwise at some that are drawn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_suite import AT_START, CrashSuite, crash_environment
from end_to_end import managed_namespace
from pod_oracle import watching_pods

from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions
from fluxqueue.queue.crashpoints import Point

SEED = int(os.environ.get("FLUXQUEUE_FAULT_SEED") or random.SystemRandom().randrange(10**9))
DRAWN = 8
IN_A_WAVE = 4


@pytest.fixture(scope="module")
def plane(service_folder: Path) -> Iterator[InProcessPlane]:
    folder = service_folder / "crashes"
    plane = InProcessPlane(folder, PlaneOptions(nodes=4, durable=False, audit=True), extra_environment=crash_environment(service_folder))
    plane.start()
    yield plane
    plane.destroy()


def chosen() -> list[Point]:
    """Every point, or some of each sort, in an order drawn from the seed."""
    drawing = random.Random(SEED)
    if os.environ.get("FLUXQUEUE_FAULT_POINTS") == "all":
        return drawing.sample(list(Point), len(Point))
    at_start = drawing.sample(sorted(AT_START), 2)
    return drawing.sample([*at_start, *drawing.sample(sorted(set(Point) - AT_START), DRAWN - 2)], DRAWN)


@pytest.mark.timeout(1800)
def test_whatever_step_the_queue_dies_at_nothing_is_lost(plane: InProcessPlane, service_folder: Path) -> None:
    print(f"FLUXQUEUE_FAULT_SEED={SEED}")  # noqa: T201  # shown where the test fails: it replays the run
    points = chosen()
    with watching_pods(plane) as oracle, managed_namespace(plane) as stage:
        suite = CrashSuite(stage, service_folder, SEED, oracle)
        for start in range(0, len(points), IN_A_WAVE):
            suite.apply_some(4)
            for point in points[start : start + IN_A_WAVE]:
                suite.strike(point)
            found = suite.judge()
            assert not found, "\n".join(found)
        assert oracle.bound > 0
    assert len(suite.strikes) >= len(points) * 3 // 4, f"not reached in time: {dict(suite.missed)}"
    print(f"recovered within {max(strike.recovery_s for strike in suite.strikes):.1f} s")  # noqa: T201  # the figure of docs/reliability.md
