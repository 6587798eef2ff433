"""Jobs whose pods come one at a time: their template holds the node,
and the webhook is not asked about their pods.
"""

from __future__ import annotations

import json

import pytest
from support.builders import Json, make_job
from support.end_to_end import Stage, scheduler_paused

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import has_required_nodes, is_pinned

RUN_SECONDS = "fluxqueue.local/run-seconds"
SSD = [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]


def one_pod(name: str, seconds: str = "forever", completions: int = 1) -> Json:
    job = make_job(name).pods(1, completions).cpu("8").pod_annotation(RUN_SECONDS, seconds)
    return job.with_("spec.backoffLimit", 3).build()


def active(stage: Stage, name: str) -> Pod | None:
    """Return the one active pod of a Job."""
    pods = [
        pod
        for pod in stage.items("pods", Pod)
        if pod.metadata.label(names.JOB_NAME_LABEL) == name and pod.active
    ]
    assert len(pods) <= 1
    return pods[0] if pods else None


def cordon(stage: Stage, node: str, *, closed: bool) -> None:
    stage.cluster.control_plane.client.request(
        "PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": closed or None}}
    )


def test_pods_of_a_released_job_are_created_while_no_webhook_answers(stage: Stage) -> None:
    stage.apply(make_job("blocks").indexed(8).cpu("8").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocks", State.RUNNING)
    stage.apply(one_pod("waits", "0.5", completions=2))
    stage.until_reason("waits", "WaitingForNodes")
    webhook = stage.cluster.programs["webhook"]
    webhook.stop(graceful=False)
    try:
        stage.kubectl("delete", "job", "blocks")
        row = stage.until_state("waits", State.COMPLETED)
    finally:
        webhook.start()
        stage.until_ready("webhook")
    pods = [pod for pod in stage.items("pods", Pod) if pod.metadata.label(names.JOB_NAME_LABEL) == "waits"]
    assert {pod.spec.node_name for pod in pods} == {row.hosts[0]}
    assert [is_pinned(pod.metadata) for pod in pods] == [True, True]
    stage.until_consistent()


def test_a_retried_pod_comes_to_the_slot_of_its_job_however_late(stage: Stage) -> None:
    stage.apply(one_pod("retried"))
    row = stage.until_state("retried", State.RUNNING)
    first = active(stage, "retried")
    assert first is not None
    stage.kubectl("delete", "pod", first.metadata.name, "--wait=false")

    def again() -> Pod | None:
        now = active(stage, "retried")
        return (
            now if now is not None and now.metadata.uid != first.metadata.uid and now.spec.node_name else None
        )

    second = stage.until("its next pod is bound", again)
    assert second is not None
    assert (second.spec.node_name, stage.row("retried").requeues) == (row.hosts[0], 0)
    assert not second.spec.scheduling_gates
    stage.until_consistent()


def test_a_job_leaves_a_drained_node_as_a_whole_and_at_once(stage: Stage) -> None:
    stage.apply(one_pod("moves"))
    node = stage.until_state("moves", State.RUNNING).hosts[0]
    try:
        stage.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"
        )
        again = stage.until(
            "it runs again",
            lambda: (now := stage.row("moves")).requeues and now.state == State.RUNNING and now,
        )
        assert again
        assert again.hosts != [node]
        assert again.ran_on == again.hosts
    finally:
        stage.kubectl("uncordon", node)
    stage.until_consistent()


def test_a_job_whose_node_is_cordoned_before_its_bind_is_matched_again_at_once(stage: Stage) -> None:
    with scheduler_paused(stage):
        stage.apply(one_pod("early"))
        pod = stage.until("its pod is there", lambda: active(stage, "early"))
        assert pod is not None
        node = str(pod.metadata.annotation(names.NODES_ANNOTATION))
        cordon(stage, node, closed=True)
        stage.until("it is matched elsewhere", lambda: stage.row("early").hosts not in ([], [node]))
    try:
        row = stage.until_state("early", State.RUNNING)
        assert row.ran_on == row.hosts
    finally:
        cordon(stage, node, closed=False)
    stage.until_consistent()


@pytest.mark.parametrize("terms", [None, SSD], ids=["no nodes of its own", "nodes of its own"])
def test_a_suspended_job_has_the_template_that_its_user_wrote(stage: Stage, terms: list[Json] | None) -> None:
    written = one_pod("paused")
    written["metadata"]["namespace"] = stage.namespace
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        written["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(written))
    stage.adopt(
        stage.cluster.control_plane.client.get(f"/apis/batch/v1/namespaces/{stage.namespace}/jobs/paused")
    )
    stage.until_state("paused", State.RUNNING)
    assert is_pinned(stage.job("paused").spec.template.metadata) is (terms is None)
    assert stage.kubectl("apply", "-f", "-", stdin=json.dumps(written), check=False).returncode == 0, (
        "to apply it again changes nothing"
    )
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":true}}')
    stage.until_reason("paused", "UserSuspended")
    template = stage.job("paused").spec.template
    assert template.spec.affinity == written["spec"]["template"]["spec"].get("affinity")
    assert [
        key
        for key in names.ALLOCATION_KEYS
        if template.metadata.label(key) or template.metadata.annotation(key)
    ] == []
    stage.kubectl("patch", "job", "paused", "-p", '{"spec":{"suspend":false}}')
    stage.until_state("paused", State.RUNNING)
    stage.until_consistent()


def test_a_job_scaled_to_zero_gives_its_node_back_and_gets_another(stage: Stage) -> None:
    stage.apply(one_pod("idle", completions=3))
    stage.until_state("idle", State.RUNNING)
    stage.kubectl("patch", "job", "idle", "-p", '{"spec":{"parallelism":0}}')
    waiting = stage.until_reason("idle", "UserSuspended")
    assert "has spec.parallelism 0: raise it and the Job can start" in waiting.status.message
    stage.until("nothing is booked", lambda: not stage.fluxion_jobs())
    assert not has_required_nodes(stage.job("idle").spec.template.spec)
    stage.kubectl("patch", "job", "idle", "-p", '{"spec":{"parallelism":2}}')
    stage.until_state("idle", State.RUNNING)
    stage.until_consistent()


def managed_by(stage: Stage, name: str) -> set[tuple[str, str]]:
    shown = json.loads(stage.kubectl("get", "job", name, "-o", "json", "--show-managed-fields").stdout)
    return {(entry["manager"], entry["operation"]) for entry in shown["metadata"].get("managedFields") or ()}


def test_a_queued_job_has_managed_fields_only_for_server_side_apply(stage: Stage) -> None:
    """Also once the Job controller has written its status. Server-side apply of the same Job still works."""
    plain, applied = (
        make_job(name)
        .with_("metadata.namespace", stage.namespace)
        .pods(1)
        .cpu("8")
        .pod_annotation(RUN_SECONDS, "1")
        .build()
        for name in ("plain", "applied")
    )
    stage.apply(plain)
    stage.until_state("plain", State.COMPLETED)
    assert managed_by(stage, "plain") == set()
    stage.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(plain))
    assert ("kubectl", "Apply") in managed_by(stage, "plain")
    text = json.dumps(applied)
    stage.adopt(
        json.loads(stage.kubectl("apply", "--server-side", "-f", "-", "-o", "json", stdin=text).stdout)
    )
    stage.until("applied is done", lambda: "Complete" in stage.kubectl("get", "job", "applied").stdout)
    assert ("kubectl", "Apply") in managed_by(stage, "applied")
