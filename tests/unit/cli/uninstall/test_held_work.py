"""Passes over an API server in memory, which has no controllers:
the tests do what the Job controller does.
"""

from typing import Any

from support.builders import Builder, make_job, make_pod
from support.memory_api import MemoryApi

from fluxqueue.cli.uninstall.held_work import find_held, release_pass

MARK = ("fluxqueue/suspended-by", "webhook")


def of_job(pod: Builder) -> dict[str, Any]:
    """Return a pod that the Job with the uid u1 controls."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u1", "controller": True}
    return pod.with_("metadata.ownerReferences", [owner]).build()


async def test_one_pass_releases_jobs_and_pods_and_a_second_finds_nothing() -> None:
    cluster = MemoryApi()
    for number in range(3):
        cluster.put("jobs", make_job(f"j{number}").suspended().annotation(*MARK).build())
    cluster.put("jobs", make_job("mine").suspended().build())
    cluster.put("pods", make_pod("bare").gate("fluxqueue").build())
    cluster.put("pods", make_pod("bound").gate().on_node("n1").build())
    held = await find_held(cluster.api)
    assert (sorted(held.jobs), held.pods) == (
        ["Job default/j0", "Job default/j1", "Job default/j2"],
        ["Pod default/bare"],
    )
    first = await release_pass(cluster.api)
    assert sorted(first.jobs) == ["Job default/j0", "Job default/j1", "Job default/j2"]
    assert first.pods == ["Pod default/bare"]
    assert not any(cluster.get("jobs", f"j{number}")["spec"]["suspend"] for number in range(3))
    assert cluster.get("jobs", "mine")["spec"]["suspend"]
    assert not cluster.get("pods", "bare")["spec"]["schedulingGates"]
    second = await release_pass(cluster.api)
    assert (second.jobs, second.pods, second.waiting, second.left) == ([], [], [], [])


async def test_what_is_refused_or_changed_is_left_to_the_next_pass_and_does_not_stop_the_others() -> None:
    cluster = MemoryApi()
    for number in range(3):
        cluster.put("jobs", make_job(f"j{number}").suspended().annotation(*MARK).build())
    cluster.fail_next(
        "patch",
        "jobs",
        403,
        "Forbidden",
        "this Job still carries an allocation: resume it again once fluxqueue has removed that, "
        "unless fluxqueue suspended it",
    )
    cluster.fail_next("patch", "jobs", 409, "Conflict")
    first = await release_pass(cluster.api)
    assert (len(first.jobs), len(first.waiting)) == (1, 2)
    assert any("still carries an allocation" in sentence for sentence in first.waiting)
    assert len((await release_pass(cluster.api)).jobs) == 2


async def test_a_job_whose_template_has_our_gate_is_stopped_changed_and_resumed_over_three_passes() -> None:
    cluster = MemoryApi()
    cluster.put(
        "jobs",
        make_job("j").uid("u1").with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}]).build(),
    )
    cluster.put("pods", of_job(make_pod("j-0").gate("fluxqueue")))
    first = await release_pass(cluster.api)
    assert first.waiting == ["Job default/j: is stopped, so that its pod template can change"]
    stopping = cluster.get("jobs", "j")
    assert stopping["spec"]["suspend"]
    cluster.put("jobs", {**stopping, "status": {"active": 1}})
    assert (await release_pass(cluster.api)).waiting == ["Job default/j: its pods are stopping"]
    cluster.remove("pods", "j-0")
    cluster.put(
        "jobs",
        {**cluster.get("jobs", "j"), "status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
    )
    assert (await release_pass(cluster.api)).jobs == ["Job default/j"]
    released = cluster.get("jobs", "j")
    assert not released["spec"]["suspend"]
    assert released["spec"]["template"]["spec"]["schedulingGates"] == []


async def test_a_job_that_runs_keeps_its_pods_and_is_named_for_its_later_ones() -> None:
    cluster = MemoryApi()
    cluster.put(
        "jobs",
        make_job("j").uid("u1").with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}]).build(),
    )
    label = ("batch.kubernetes.io/controller-uid", "u1")
    running = make_pod("j-0").on_node("n1").label(*label)
    later = make_pod("j-1").gate("fluxqueue").label(*label)
    cluster.put("pods", of_job(running))
    cluster.put("pods", of_job(later))
    result = await release_pass(cluster.api)
    assert (result.pods, result.gated_later) == (["Pod default/j-1"], ["Job default/j"])
    assert not cluster.get("jobs", "j")["spec"].get("suspend")
    assert cluster.get("pods", "j-0")["spec"]["nodeName"] == "n1"


async def test_a_pod_of_a_job_that_is_gone_is_released_like_any_other() -> None:
    cluster = MemoryApi()
    cluster.put("pods", of_job(make_pod("orphan").gate("fluxqueue")))
    assert (await find_held(cluster.api)).pods == ["Pod default/orphan"]
    assert (await release_pass(cluster.api)).pods == ["Pod default/orphan"]


async def test_the_services_pod_of_a_running_minicluster_starts_and_that_of_a_waiting_one_goes() -> None:
    cluster = MemoryApi()
    owner = {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "name": "flux",
        "uid": "m",
        "controller": True,
    }
    for name, suspend in (("runs", False), ("waits", True)):
        job = make_job(name).uid(name).suspended(suspend).with_("metadata.ownerReferences", [owner])
        cluster.put("jobs", (job.annotation(*MARK) if suspend else job).build())
        services = make_pod(f"{name}-services").gate("fluxqueue").label("fluxqueue/services-of", name)
        cluster.put("pods", services.with_("metadata.ownerReferences", [owner]).build())
    result = await release_pass(cluster.api)
    assert result.pods == ["Pod default/runs-services"]
    assert sorted(result.deleted) == ["Job default/waits", "Pod default/waits-services"]


async def test_the_start_time_is_cleared_where_an_older_server_refuses_to_change_the_template() -> None:
    cluster = MemoryApi()
    status = {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]}
    job = (
        make_job("j")
        .suspended()
        .annotation(*MARK)
        .pod_annotation("fluxqueue/allocation", "7")
        .with_("status", status)
    )
    cluster.put("jobs", job.build())
    cluster.fail_next("patch", "jobs", 422, "Invalid", "spec.template: field is immutable")
    assert "immutable" in (await release_pass(cluster.api)).waiting[0]
    assert "startTime" not in cluster.get("jobs", "j")["status"]
    assert (await release_pass(cluster.api)).jobs == ["Job default/j"]
