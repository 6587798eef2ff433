"""Argo Workflows as its project ships it (argoproj/argo-workflows, Apache-2.0):
its own examples, each pod matched by itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.ecosystem_controllers import ARGO_WORKFLOWS
from support.end_to_end import Stage

CONTROLLER = ARGO_WORKFLOWS
RESOURCES = "workflows.argoproj.io"


@pytest.fixture(autouse=True)
def _known_owners(stage: Stage) -> None:
    """Wait until the API server lets the controller name a Workflow as the owner of a pod:
    it learns of new kinds every half minute.
    """
    owner = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": "w",
        "uid": "w",
        "blockOwnerDeletion": True,
    }
    metadata = {"name": "owned", "ownerReferences": [owner]}
    pod = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        }
    )
    account = ":".join(("system:serviceaccount", *CONTROLLER.account))
    words = ("create", "--dry-run=server", f"--as={account}", "-f", "-")
    stage.until("Workflows are known", lambda: stage.kubectl(*words, stdin=pod, check=False).returncode == 0)


@pytest.mark.parametrize(("file", "pods"), [("steps.yaml", 3), ("dag-diamond.yaml", 4)])
def test_a_workflow_completes_and_each_of_its_pods_is_matched_by_itself(
    file: str, pods: int, stage: Stage, programs: Path
) -> None:
    text = (programs / CONTROLLER.examples / file).read_text()
    name = json.loads(stage.kubectl("create", "-f", "-", "-o", "json", stdin=text).stdout)["metadata"]["name"]
    words = ("get", RESOURCES, name, "-o", "jsonpath={.status.phase}")
    stage.until(
        "the workflow has succeeded",
        lambda: stage.kubectl(*words).stdout == "Succeeded",
        180,
        lambda: stage.kubectl(*words).stdout,
    )
    kinds = ["Pod"] * pods
    stage.until(
        "each pod has its FluxJob",
        lambda: [one.spec.object_ref.kind for one in stage.fluxjobs()] == kinds,
        60,
        stage.fluxjobs,
    )
    assert {one.status.state for one in stage.fluxjobs()} == {"Completed"}
    stage.until_consistent()
