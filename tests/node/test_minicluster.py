"""A MiniCluster in real pods: names of a headless Service, a view copied by an init container, brokers that
find each other.

``flux`` is the tests' stand-in (`support/flux_standin.py`); its brokers connect over the pod network.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import Json, make_minicluster
from support.real_nodes import NodeStage

from fluxqueue.api import names
from fluxqueue.api.hostlists import decode
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.local.nodes.images import Image

COLLECTION = (
    f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/{{}}/{names.MINICLUSTERS}"
)


def minicluster(stage: NodeStage, name: str, command: str, **spec: Any) -> Json:
    images = stage.real.images
    view = {"image": images[Image.WORK].name}
    made = make_minicluster(name, 2, command, flux={"container": view}, **spec)
    leader = f"{name}-0.{name}.{stage.namespace}.svc.cluster.local"
    environment = {"FLUX_STANDIN_LEADER": leader, "FLUX_STANDIN_LOG": "/tmp/flux.log"}
    amounts = {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}
    made["spec"]["containers"][0] |= {
        "image": images[Image.WORK].name,
        "resources": amounts,
        "environment": environment,
    }
    return made


def seen(stage: NodeStage, name: str) -> MiniCluster:
    return msgspec.convert(
        stage.real.nodes.client.get(f"{COLLECTION.format(stage.namespace)}/{name}"), MiniCluster
    )


@pytest.mark.parametrize(
    ("command", "state"),
    [("hostname", "Succeeded"), ("sh -c 'exit 3'", "Failed")],
    ids=["success", "failure"],
)
def test_brokers_of_two_pods_find_each_other_and_run_the_command(
    stage: NodeStage, command: str, state: str
) -> None:
    stage.apply(minicluster(stage, "flux", command))
    stage.until(
        "it has ended",
        lambda: seen(stage, "flux").status.state == state,
        180,
        lambda: (seen(stage, "flux").status, _said(stage)),
    )
    pods = stage.real.get("pods", "-n", stage.namespace, "-l", "batch.kubernetes.io/job-name=flux")["items"]
    ranks = {
        int(pod["metadata"]["annotations"][names.COMPLETION_INDEX_ANNOTATION]): pod["spec"]["nodeName"]
        for pod in pods
    }
    nodes = dict(enumerate(decode(stage.fluxjobs()[0].status.nodes)))
    assert (ranks, len(nodes)) == ({rank: nodes[rank] for rank in ranks}, 2)
    assert 0 in ranks  # the Job controller deletes the other pod of a Job that failed, if it still runs
    stage.kubectl("delete", "minicluster", "flux", "--wait=true", "--timeout=60s")
    stage.until_consistent()


def _said(stage: NodeStage) -> str:
    pods = stage.kubectl("get", "pods", "-o", "wide", check=False).stdout
    logs = stage.kubectl(
        "logs",
        "-l",
        "batch.kubernetes.io/job-name=flux",
        "--all-containers",
        "--prefix",
        "--tail=20",
        check=False,
    )
    return f"{pods}\n{logs.stdout}{logs.stderr}"
