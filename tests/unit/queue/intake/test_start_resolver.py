from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.builders import make_job, make_pod
from support.queue_builders import a_job, a_pod, a_workload, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS


def described(**annotations: str) -> NewWorkload:
    builder = make_job("w").suspended().annotation("fluxqueue/suspended-by", "webhook")
    builder = builder.with_("metadata.creationTimestamp", "2026-11-21T08:00:00Z")
    for key, text in annotations.items():
        builder = builder.annotation(f"fluxqueue/{key}", text)
    new = describe_job(a_job(builder), around())
    assert new is not None
    return new


def test_work_without_such_annotations_has_no_conditions() -> None:
    assert described().start_conditions is NO_START_CONDITIONS


def test_dependencies_time_and_singleton_are_read() -> None:
    new = described(after="ok:job/a", begin="+2h", singleton="train")
    assert [str(each) for each in new.start_conditions.after] == ["ok:job/a"]
    assert new.start_conditions.begin_at == datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    assert new.start_conditions.singleton == "train"
    assert new.reason is Reason.NONE, "whether it waits is not a question of its object alone"


def test_a_deadline_keeps_nothing_from_starting() -> None:
    new = described(deadline="+2h")
    assert (new.start_conditions.deadline, new.reason) == (
        datetime(2026, 11, 21, 10, 0, tzinfo=UTC),
        Reason.NONE,
    )


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"after": "job/a"}, "Job default/w: annotation fluxqueue/after: 'job/a' is not a dependency"),
        ({"begin": "soon"}, "Job default/w: annotation fluxqueue/begin: 'soon' is not a time"),
        ({"begin": "2126-01-01T00:00:00Z"}, "more than ten years ahead"),
        ({"deadline": "soon"}, "Job default/w: annotation fluxqueue/deadline: 'soon' is not a time"),
        ({"singleton": "a b"}, "Job default/w: annotation fluxqueue/singleton: 'a b' is not a name"),
    ],
)
def test_what_cannot_be_read_waits_with_the_annotation_as_its_reason(
    annotations: dict[str, str], sentence: str
) -> None:
    new = described(**annotations)
    assert new.reason is Reason.INVALID_REQUEST
    assert sentence in new.message


def test_pods_that_are_replaced_cannot_wait_for_others() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    pod = (
        make_pod("db-0")
        .gate("fluxqueue")
        .annotation("fluxqueue/after", "ok:job/a")
        .with_("metadata.ownerReferences", [owner])
    )
    new = describe_pod(a_pod(pod), around())
    assert new is not None
    assert new.reason is Reason.INVALID_REQUEST
    assert "its owner replaces its pods" in new.message


def test_a_pod_beside_its_running_job_does_not_wait_again() -> None:
    pod = make_pod("w-3").gate("fluxqueue").annotation("fluxqueue/after", "ok:job/gone")
    new = describe_pod(a_pod(pod), around(), job=a_workload("w"))
    assert new is not None
    assert new.start_conditions is NO_START_CONDITIONS
