from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.dependency_rules import judge, waits_for
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.start_conditions import DependencyState, TrackedDependency, track

BEGAN = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(hours=1)
NOW = ENDED + timedelta(days=30)

WAITS = a_workload("target")
RUNS = a_workload("target", state=State.RUNNING, started_at=BEGAN)
SUCCEEDED = a_workload(
    "target", state=State.COMPLETED, outcome=Outcome.SUCCEEDED, started_at=BEGAN, finished_at=ENDED
)
FAILED = a_workload("target", state=State.FAILED, outcome=Outcome.FAILED, started_at=BEGAN, finished_at=ENDED)
CANCELLED = a_workload("target", state=State.CANCELLED, outcome=Outcome.CANCELLED, finished_at=ENDED)
VANISHED = a_workload(
    "target", state=State.COMPLETED, outcome=Outcome.UNKNOWN, started_at=BEGAN, finished_at=ENDED
)


def dependency(text: str) -> TrackedDependency:
    return track(parse_dependencies(text)[0])


@pytest.mark.parametrize(
    ("condition", "target", "state"),
    [
        *((condition, WAITS, "open") for condition in ("ok", "any", "fail", "start")),
        *((condition, RUNS, "open") for condition in ("ok", "any", "fail")),
        ("start", RUNS, "satisfied"),
        ("ok", SUCCEEDED, "satisfied"),
        ("ok", FAILED, "impossible"),
        ("ok", CANCELLED, "impossible"),
        ("ok", VANISHED, "impossible"),
        ("fail", SUCCEEDED, "impossible"),
        ("fail", FAILED, "satisfied"),
        ("fail", CANCELLED, "satisfied"),
        ("fail", VANISHED, "satisfied"),
        *(
            (condition, target, "satisfied")
            for condition in ("any", "start")
            for target in (SUCCEEDED, FAILED, CANCELLED, VANISHED)
        ),
        ("any", None, "satisfied"),
        ("start", None, "satisfied"),
        ("ok", None, "impossible"),
        ("fail", None, "impossible"),
    ],
)
def test_a_condition_is_judged_by_how_far_its_target_came(
    condition: str, target: Workload | None, state: str
) -> None:
    assert judge(dependency(f"{condition}:job/target"), target, NOW).state == state


def test_what_is_judged_remembers_the_uid_of_its_target() -> None:
    assert judge(dependency("ok:job/target"), WAITS, NOW).target == WAITS.uid


@pytest.mark.parametrize(
    ("text", "target", "not_before"),
    [
        ("ok:job/target", SUCCEEDED, None),
        ("any:job/target+10m", FAILED, ENDED + timedelta(minutes=10)),
        ("start:job/target+10m", RUNS, BEGAN + timedelta(minutes=10)),
        ("start:job/target+10m", SUCCEEDED, BEGAN + timedelta(minutes=10)),
        ("start:job/target+10m", CANCELLED, ENDED + timedelta(minutes=10)),
        ("any:job/target+10m", None, NOW + timedelta(minutes=10)),
    ],
)
def test_a_delay_counts_from_the_event_that_satisfied_it(
    text: str, target: Workload | None, not_before: datetime | None
) -> None:
    assert judge(dependency(text), target, NOW).not_before == not_before


def test_what_is_impossible_names_the_target_and_its_outcome() -> None:
    after = judge(dependency("ok:job/target"), FAILED, NOW)
    assert (after.state, after.detail) == (DependencyState.IMPOSSIBLE, "Job default/target ended as Failed")


def test_words_name_the_object_and_whether_the_queue_has_it() -> None:
    assert (
        waits_for(dependency("fail:pod-group/mesh"), "team")
        == "PodGroup team/mesh, which is not in the queue, to fail"
    )
    assert (
        waits_for(judge(dependency("ok:minicluster/flux"), WAITS, NOW), "team")
        == "MiniCluster team/flux to succeed"
    )
