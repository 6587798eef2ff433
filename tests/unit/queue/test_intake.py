import json
from typing import Any

import pytest
from builders import Builder, make_job, make_pod
from queue_builders import a_job, a_pod, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.objects import Taint
from fluxqueue.queue.intake import QueueDefaults, describe_job, describe_pod
from fluxqueue.queue.records import NewWorkload, ReleaseMode

HELD_BY_US = "fluxqueue/suspended-by"


def held(builder: Any) -> Any:
    return builder.suspended().annotation(HELD_BY_US, "webhook")


def described(builder: Builder, **surroundings: Any) -> NewWorkload:
    found = describe_job(a_job(held(builder)), around(**surroundings))
    assert found is not None
    return found


def test_a_job_asks_for_all_its_pods_at_once_with_one_pod_slot_each() -> None:
    found = described(make_job("lammps").indexed(4).cpu("1500m").memory("2Gi"))
    slot = json.loads(found.jobspec)["resources"][0]
    assert (slot["type"], slot["count"]) == ("slot", 4)
    assert {member["type"]: member["count"] for member in slot["with"]} == {"cpu": 1500, "memory": 2048, "pods": 1}
    assert (found.pods, found.queue, found.reason) == (4, "default", Reason.NONE)


def test_a_pod_that_asks_for_nothing_still_takes_a_pod_slot() -> None:
    slot = json.loads(described(make_job()).jobspec)["resources"][0]
    assert slot["with"] == [{"type": "pods", "count": 1}]


@pytest.mark.parametrize(
    ("builder", "mode"),
    [
        pytest.param(make_job().indexed(4), ReleaseMode.PIN, id="indexed, all at once"),
        pytest.param(make_job(), ReleaseMode.PIN, id="one pod"),
        pytest.param(make_job().pods(4, 1), ReleaseMode.PIN, id="one completion, whatever the parallelism"),
        pytest.param(make_job().pods(3, 3), ReleaseMode.GATE, id="several without index"),
        pytest.param(make_job().pods(2, 6).with_("spec.completionMode", "Indexed"), ReleaseMode.GATE, id="more indexes than pods"),
        pytest.param(make_job().indexed(4).annotation("fluxqueue/replace", "pod"), ReleaseMode.GATE, id="asked for replacement pod by pod"),
    ],
)
def test_the_kind_of_job_decides_how_it_is_released(builder: Builder, mode: ReleaseMode) -> None:
    assert described(builder).release_mode is mode


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}]), id="finished"),
        pytest.param(make_job().with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), id="going away"),
        pytest.param(make_job().pod_label("fluxqueue/managed", "false"), id="opted out in its template"),
        pytest.param(make_job().with_("spec.managedBy", "kueue.x-k8s.io/multikueue"), id="managed by somebody else"),
        pytest.param(make_job().label("kueue.x-k8s.io/queue-name", "team"), id="in another queue system"),
    ],
)
def test_what_is_not_ours_is_left_alone(builder: Any) -> None:
    assert describe_job(a_job(held(builder)), around()) is None


def test_a_job_that_runs_without_us_is_ours_only_through_gated_pods() -> None:
    running = a_job(make_job().pods(2, 2).suspended(False))
    assert describe_job(running, around()) is None
    found = describe_job(running, around(), has_gated_pods=True)
    assert found is not None
    assert found.release_mode is ReleaseMode.GATE


def test_a_job_its_user_suspended_waits_for_its_user() -> None:
    found = describe_job(a_job(make_job("mine").suspended()), around())
    assert found is not None
    assert found.reason is Reason.USER_SUSPENDED
    assert "Job default/mine" in found.message


def test_parallelism_zero_is_accepted_and_says_what_to_raise() -> None:
    found = described(make_job().pods(0, 0))
    assert found.reason is Reason.USER_SUSPENDED
    assert "spec.parallelism" in found.message


@pytest.mark.parametrize(
    ("builder", "seconds", "assumed"),
    [
        pytest.param(make_job(), 3600, True, id="nobody said"),
        pytest.param(make_job().with_("spec.activeDeadlineSeconds", 90), 90, False, id="a deadline"),
        pytest.param(
            make_job().with_("spec.activeDeadlineSeconds", 90).annotation("fluxqueue/duration", "30m"),
            1800,
            False,
            id="annotation first",
        ),
    ],
)
def test_the_wall_time_is_what_the_object_says_best(builder: Builder, seconds: int, assumed: bool) -> None:
    found = described(builder)
    assert (found.duration_s, found.duration_assumed) == (seconds, assumed)


@pytest.mark.parametrize(
    ("builder", "reason", "words"),
    [
        pytest.param(make_job("x").annotation("fluxqueue/duration", "soon"), Reason.INVALID_REQUEST, "fluxqueue/duration", id="duration"),
        pytest.param(make_job("x").annotation("fluxqueue/priority", "high"), Reason.INVALID_REQUEST, "fluxqueue/priority", id="priority"),
        pytest.param(make_job("x").label("fluxqueue/queue", "gold"), Reason.UNKNOWN_QUEUE, "'gold'", id="queue"),
        pytest.param(make_job("x").cpu("lots"), Reason.INVALID_REQUEST, "container 'main' requests cpu", id="quantity"),
        pytest.param(
            make_job("x").with_("spec.template.spec.topologySpreadConstraints", [{"maxSkew": 1}]),
            Reason.INVALID_REQUEST,
            "topologySpreadConstraints",
            id="a rule the graph cannot check",
        ),
    ],
)
def test_what_is_wrong_is_a_reason_naming_object_and_field(builder: Builder, reason: Reason, words: str) -> None:
    found = described(builder)
    assert found.reason is reason
    assert "Job default/x" in found.message
    assert words in found.message


def test_longer_than_the_queue_allows_is_refused_with_both_figures() -> None:
    found = described(make_job().annotation("fluxqueue/duration", "2h"), queues={"default": QueueDefaults(max_duration_s=3600)})
    assert found.reason is Reason.INVALID_REQUEST
    assert "7200 s" in found.message
    assert "3600 s" in found.message


def test_a_namespace_may_name_the_queue_and_the_object_overrules_it() -> None:
    queues = {"default": QueueDefaults(), "team": QueueDefaults(priority=5), "own": QueueDefaults()}
    assert described(make_job(), queues=queues, namespace_labels={"fluxqueue/queue": "team"}).queue == "team"
    assert described(make_job().label("fluxqueue/queue", "own"), queues=queues, namespace_labels={"fluxqueue/queue": "team"}).queue == "own"
    assert described(make_job(), queues=queues, namespace_labels={"fluxqueue/queue": "team"}).priority == 5


def test_priority_is_the_class_unless_the_annotation_says_otherwise() -> None:
    job = make_job().with_("spec.template.spec.priorityClassName", "urgent")
    assert described(job, priority_classes={"urgent": 900}).priority == 900
    assert described(job.annotation("fluxqueue/priority", "7"), priority_classes={"urgent": 900}).priority == 7


def test_taints_it_does_not_tolerate_and_labels_it_selects_become_the_constraint() -> None:
    job = make_job().with_("spec.template.spec.nodeSelector", {"disk": "ssd"})
    constraint = json.loads(described(job, taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),)).jobspec)["attributes"]["system"][
        "constraints"
    ]
    assert constraint == {"and": [{"properties": ["disk=ssd"]}, {"not": [{"properties": ["taint:gpu=yes:NoSchedule"]}]}]}


def test_equal_requests_have_equal_shapes_whatever_their_names() -> None:
    assert described(make_job("a").cpu("2")).shape == described(make_job("b").cpu("2000m")).shape
    assert described(make_job("a").cpu("2")).shape != described(make_job("a").cpu("3")).shape


def test_a_gated_bare_pod_is_a_workload_of_one_without_an_end() -> None:
    found = describe_pod(a_pod(make_pod("solo").gate("fluxqueue").with_("spec.restartPolicy", "Always")), around())
    assert found is not None
    assert (found.kind, found.pods, found.duration_s, found.release_mode) == ("Pod", 1, None, ReleaseMode.POD)


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(make_pod(), id="not gated by us"),
        pytest.param(make_pod().gate("somebody-else"), id="gated by another"),
        pytest.param(make_pod().gate("fluxqueue").owned_by("Job"), id="a Job's, which is matched as a whole"),
        pytest.param(make_pod().gate("fluxqueue").with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), id="going away"),
    ],
)
def test_pods_that_are_not_workloads_of_their_own_are_left_alone(builder: Builder) -> None:
    assert describe_pod(a_pod(builder), around()) is None
