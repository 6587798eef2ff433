from typing import Any

import msgspec
import pytest
from support.builders import Builder, make_job, make_pod

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import node_affinity
from fluxqueue.cli.uninstall.work_decisions import (
    Delete,
    JobPatch,
    Left,
    PodPatch,
    Wait,
    decide_job,
    decide_pod,
    is_held,
)

MARK = ("fluxqueue/suspended-by", "webhook")


def a_job(builder: Builder) -> Job:
    return msgspec.convert(builder.namespace("team").build(), Job, strict=False)


def a_pod(builder: Builder) -> Pod:
    return msgspec.convert(builder.namespace("team").build(), Pod, strict=False)


def patch_of(action: object) -> dict[str, Any]:
    assert isinstance(action, (JobPatch, PodPatch))
    return action.body


def test_a_job_that_the_webhook_suspended_resumes_without_our_mark() -> None:
    job = a_job(make_job().suspended().annotation(*MARK).label("fluxqueue.seen", "yes"))
    patch = patch_of(decide_job(job, [], has_started=False))
    assert patch["spec"] == {"suspend": False}
    assert patch["metadata"]["annotations"] == {"fluxqueue/suspended-by": None}
    assert patch["metadata"]["labels"]["fluxqueue.seen"] is None
    assert patch["metadata"]["resourceVersion"] == job.metadata.resource_version


def test_a_job_that_was_evicted_loses_its_allocation_and_the_gate_of_its_template_when_it_has_stopped() -> (
    None
):
    builder = (
        make_job()
        .suspended()
        .annotation(*MARK)
        .pod_annotation("fluxqueue/allocation", "7")
        .pod_annotation("fluxqueue/scheduler", "stock")
        .pod_label("fluxqueue/jobid", "7")
        .with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}, {"name": "theirs"}])
    )
    running = a_job(builder.with_("status", {"active": 1, "startTime": "2026-01-01T00:00:00Z"}))
    assert decide_job(running, [], has_started=False) == Wait()
    stopped = a_job(
        builder.with_(
            "status",
            {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]},
        )
    )
    template = patch_of(decide_job(stopped, [], has_started=False))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"fluxqueue/allocation": None, "fluxqueue/scheduler": None}
    assert template["metadata"]["labels"] == {"fluxqueue/jobid": None}
    assert template["spec"] == {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}


def test_a_job_that_was_evicted_loses_the_node_of_its_template() -> None:
    for marks, state in ((MARK, "resumed"), (None, "left suspended")):
        builder = (
            make_job()
            .suspended()
            .pod_label("fluxqueue/pinned", "yes")
            .pod_annotation("fluxqueue/fluxion-nodes", "n7")
            .with_("spec.template.spec.affinity", node_affinity("n7"))
        )
        patch = patch_of(
            decide_job(a_job(builder.annotation(*marks) if marks else builder), [], has_started=False)
        )
        assert patch["spec"]["template"] == {
            "metadata": {
                "annotations": {"fluxqueue/fluxion-nodes": None},
                "labels": {"fluxqueue/pinned": None},
            },
            "spec": {"affinity": None},
        }, state


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(make_job().suspended(), id="its user suspended it"),
        pytest.param(make_job(), id="it runs"),
        pytest.param(
            make_job()
            .suspended()
            .annotation(*MARK)
            .with_("status.conditions", [{"type": "Complete", "status": "True"}]),
            id="it is finished",
        ),
        pytest.param(
            make_job()
            .suspended()
            .annotation(*MARK)
            .with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
            id="it is deleted",
        ),
    ],
)
def test_a_job_that_we_do_not_hold_is_left_alone(builder: Builder) -> None:
    assert decide_job(a_job(builder), [], has_started=False) is None


def test_a_job_that_its_user_suspended_stays_suspended_and_loses_the_gate_of_its_template() -> None:
    job = a_job(make_job().suspended().with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}]))
    patch = patch_of(decide_job(job, [], has_started=False))
    assert "suspend" not in patch["spec"]
    assert patch["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "fluxqueue", "$patch": "delete"}]


def test_a_job_that_was_released_pod_by_pod_and_has_not_started_is_stopped_to_change_its_template() -> None:
    job = a_job(
        make_job().uid("job-uid").with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}])
    )
    pod = a_pod(make_pod().gate("fluxqueue").owned_by("Job"))
    action = decide_job(job, [pod], has_started=False)
    assert isinstance(action, JobPatch)
    assert action.then_again
    assert action.body["spec"] == {"suspend": True}
    assert action.body["metadata"]["annotations"] == {"fluxqueue/suspended-by": "webhook"}
    assert decide_job(job, [pod], has_started=True) is None
    assert patch_of(decide_pod(pod, job))["spec"] == {
        "schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]
    }


def test_a_job_of_a_jobset_is_not_stopped_because_the_jobset_would_resume_it() -> None:
    job = a_job(make_job().owned_by("JobSet", "set", api_version="jobset.x-k8s.io/v1alpha2"))
    pod = a_pod(make_pod().gate("fluxqueue").owned_by("Job"))
    assert decide_job(job, [pod], has_started=False) is None
    assert isinstance(decide_pod(pod, job), PodPatch)


def test_a_waiting_minicluster_loses_its_job_which_a_controller_creates_again() -> None:
    owned = make_job().owned_by("MiniCluster", "flux", api_version="flux-framework.org/v1alpha2")
    assert decide_job(a_job(owned.suspended().annotation(*MARK)), [], has_started=False) == Delete()
    gated = a_pod(make_pod().gate("fluxqueue").owned_by("Job"))
    assert decide_job(a_job(owned.suspended(False)), [gated], has_started=False) == Delete()
    services = a_pod(
        make_pod()
        .gate("fluxqueue")
        .owned_by("MiniCluster", "flux", api_version="flux-framework.org/v1alpha2")
    )
    assert decide_pod(services) == Delete()


@pytest.mark.parametrize(
    ("builder", "sentence"),
    [
        (make_job().annotation("fluxqueue/minicluster", "true"), "Job team/j asks for a Flux cluster"),
        (
            make_job().with_("spec.template.spec.schedulerName", "FluxionScheduler"),
            "Job team/j names FluxionScheduler",
        ),
    ],
)
def test_a_job_that_cannot_run_without_us_stays_suspended_and_is_named(builder: Any, sentence: str) -> None:
    action = decide_job(a_job(builder.suspended().annotation(*MARK)), [], has_started=False)
    assert isinstance(action, Left)
    assert action.sentence.startswith(sentence)


def test_a_gated_pod_loses_our_gate_and_no_other() -> None:
    pod = a_pod(make_pod().gate("theirs", "fluxqueue").label("fluxqueue.seen", "yes"))
    patch = patch_of(decide_pod(pod))
    assert patch["spec"] == {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}
    assert patch["metadata"]["labels"]["fluxqueue.seen"] is None
    assert "affinity" not in patch["spec"]


def test_only_pods_that_nothing_else_starts_are_held() -> None:
    assert is_held(a_pod(make_pod().gate("fluxqueue")))
    assert is_held(a_pod(make_pod().by_fluxion()))
    assert not is_held(a_pod(make_pod()))
    assert not is_held(a_pod(make_pod().gate("theirs")))
    assert not is_held(a_pod(make_pod().by_fluxion().on_node("n1")))
    assert decide_pod(a_pod(make_pod().gate("theirs"))) is None


def test_a_pod_that_the_webhook_gave_to_our_scheduler_is_deleted_where_its_owner_creates_it_again() -> None:
    ours = make_pod().by_fluxion().label("fluxqueue.seen", "yes").owned_by("ReplicaSet")
    assert decide_pod(a_pod(ours)) == Delete()
    of_job = a_pod(make_pod().by_fluxion().label("fluxqueue.seen", "yes").owned_by("Job"))
    assert decide_pod(of_job, a_job(make_job())) == Delete()
    bare = decide_pod(a_pod(make_pod().by_fluxion().label("fluxqueue.seen", "yes")))
    own_template = decide_pod(a_pod(make_pod().by_fluxion().owned_by("ReplicaSet")))
    assert isinstance(bare, Left)
    assert isinstance(own_template, Left)


@pytest.mark.parametrize(
    "spec",
    [{"backoffLimit": 0}, {"backoffLimit": 2, "failed": 2}, {"backoffLimitPerIndex": 0}],
)
def test_a_pod_is_not_deleted_where_that_would_fail_its_job(spec: dict[str, int]) -> None:
    failed = spec.pop("failed", 0)
    builder = make_job().with_("status.failed", failed)
    for field, value in spec.items():
        builder = builder.with_(f"spec.{field}", value)
    pod = a_pod(make_pod().by_fluxion().label("fluxqueue.seen", "yes").owned_by("Job"))
    assert isinstance(decide_pod(pod, a_job(builder)), Left)
