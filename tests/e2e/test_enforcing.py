"""Enforcing mode with the webhook: queued work runs as before, and only exempt users can bypass the queue."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import make_job, make_minicluster, make_pod
from support.end_to_end import Stage, wrong
from support.pages import blocks_run_by

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.binaries import Tool
from fluxqueue.local.chart import render
from fluxqueue.local.inprocess import NAMESPACE, RELEASE

RUN_SECONDS = "fluxqueue.local/run-seconds"
RULE = "may not take work out of the queue"
HERE = "tests/e2e/test_enforcing.py"


@pytest.fixture
def enforced(stage: Stage) -> Iterator[Stage]:
    """Apply the policies in addition to the installation.
    No user is exempt, and kubectl acts as an administrator in this local cluster.
    """
    cluster = stage.cluster.control_plane
    values = {"enforcement": {"mode": "deny", "exempt": {"groups": []}}}
    rendered = render(cluster.binaries[Tool.HELM], RELEASE, NAMESPACE, values).objects
    policies = [manifest for manifest in rendered if "-enforce-" in manifest["metadata"]["name"]]
    cluster.apply(*policies)
    try:
        stage.until(
            "the policies are in force",
            lambda: RULE in refusal(stage, make_pod("probe").label("fluxqueue/managed", "false").build()),
        )
        yield stage
    finally:
        for manifest in policies:
            stage.kubectl("delete", manifest["kind"], manifest["metadata"]["name"])


def refusal(stage: Stage, thing: dict[str, Any]) -> str:
    """Return kubectl's message for an object whose creation is refused."""
    document = {**thing, "metadata": {**thing["metadata"], "namespace": stage.namespace}}
    done = stage.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document), check=False)
    return "" if done.returncode == 0 else str(done.stderr)


def test_queued_work_runs_and_nothing_bypasses_the_queue(enforced: Stage) -> None:
    containers = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {RUN_SECONDS: "forever"}},
        "spec": {"containers": containers},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    gang, crowd = (make_job(name).cpu("1").pod_annotation(RUN_SECONDS, "1") for name in ("gang", "crowd"))
    pod = make_pod("pod").cpu("1").with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, "1")
    services = [{"name": "registry", "image": "registry"}]
    enforced.apply(gang.indexed(3).build(), crowd.pods(2, 4).build(), pod.build(), deployment)
    enforced.apply(
        make_minicluster("flux", 2, services=services, pod={"annotations": {RUN_SECONDS: "forever"}})
    )
    for name in ("gang", "crowd", "pod"):
        enforced.until_state(name, State.COMPLETED)
    for name in ("web", "flux"):
        enforced.until_state(name, State.RUNNING)
    assert wrong([enforced.row(name) for name in ("gang", "crowd", "pod")]) == []
    for way_out in (
        make_job("out").label("fluxqueue/managed", "false").build(),
        make_job("out").with_("spec.template.spec.nodeName", "node-1").build(),
        make_job("out").label("kueue.x-k8s.io/queue-name", "theirs").build(),
        make_job("out").with_("spec.managedBy", "example.com/theirs").build(),
        make_pod("out").on_node("node-1").build(),
    ):
        assert RULE in refusal(enforced, way_out)


def typed(stage: Stage, block: str) -> str:
    """Run a block of a page as an administrator who has kubectl and nothing else,
    and return what it prints.
    """
    cluster = stage.cluster.control_plane
    environment = {**cluster.kubectl_environment()}
    environment["PATH"] = os.pathsep.join(
        [str(Path(cluster.binaries[Tool.KUBECTL]).parent), environment["PATH"]]
    )
    command = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_new_work_starts_without_a_webhook_by_the_commands_of_the_runbook(enforced: Stage) -> None:
    stage = enforced
    past_the_webhook, past_the_policy, undone, listed = blocks_run_by("incidents.md", HERE)
    job, pod = (
        make_job("urgent").cpu("1").pod_annotation(RUN_SECONDS, "forever").build(),
        make_pod("urgent").cpu("1").build(),
    )
    webhook = stage.cluster.programs["webhook"]
    webhook.stop(graceful=False)
    try:
        stage.until("no webhook answers", lambda: "failed calling webhook" in refusal(stage, job))
        typed(stage, past_the_webhook)
        stage.until("a policy refuses what no webhook saw", lambda: "did not see it" in refusal(stage, pod))
        typed(stage, past_the_policy)
        stage.until("a pod is admitted", lambda: refusal(stage, pod) == "")
        stage.apply(job)
        stage.until("the Job runs", lambda: phases(stage, "urgent") == ["Running"])
        assert "urgent-" in typed(stage, listed)
    finally:
        webhook.start()
        typed(stage, undone)
    stage.until_ready("webhook")
    stage.until(
        "the policies are in force again",
        lambda: RULE in refusal(stage, make_pod("out").on_node("node-1").build()),
    )
    stage.apply(make_job("ordinary").cpu("1").pod_annotation(RUN_SECONDS, "1").build())
    assert wrong([stage.until_state("ordinary", State.COMPLETED)]) == []
    assert phases(stage, "urgent") == ["Running"]


def phases(stage: Stage, job: str) -> list[str]:
    """Return the phases of a Job's pods."""
    pods = json.loads(stage.kubectl("get", "pods", f"--selector=job-name={job}", "--output=json").stdout)[
        "items"
    ]
    return [pod["status"]["phase"] for pod in pods]
