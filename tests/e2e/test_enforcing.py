"""Enforcing mode with the webhook: queued work runs as before, and only exempt users can bypass the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import make_job, make_minicluster, make_pod
from support.end_to_end import Stage, wrong

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.binaries import Tool
from fluxqueue.local.chart import render
from fluxqueue.local.inprocess import NAMESPACE, RELEASE

RUN_SECONDS = "fluxqueue.local/run-seconds"
RULE = "may not take work out of the queue"


@pytest.fixture
def enforced(stage: Stage) -> Iterator[Stage]:
    """Apply the policies in addition to the installation. No user is exempt, and kubectl acts as an administrator in this local cluster."""
    cluster = stage.cluster.control_plane
    values = {"enforcement": {"mode": "deny", "exempt": {"groups": []}}}
    rendered = render(cluster.binaries[Tool.HELM], RELEASE, NAMESPACE, values).objects
    policies = [manifest for manifest in rendered if "-enforce-" in manifest["metadata"]["name"]]
    cluster.apply(*policies)
    try:
        stage.until(
            "the policies are in force", lambda: RULE in refusal(stage, make_pod("probe").label("fluxqueue/managed", "false").build())
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
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {RUN_SECONDS: "forever"}}, "spec": {"containers": containers}}
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
    enforced.apply(make_minicluster("flux", 2, services=services, pod={"annotations": {RUN_SECONDS: "forever"}}))
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
