"""The node of a pod is chosen by the rules on ports and volumes that the stock scheduler enforces on a pinned
pod.
"""

from __future__ import annotations

from support.builders import Json, make_job, make_pod
from support.end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State

RUN_SECONDS = "fluxqueue.local/run-seconds"


def deployment(name: str, replicas: int, port: int) -> Json:
    pod = make_pod(name).cpu("1").host_ports(port).build()
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def job_with(claim: str) -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return (
        make_job("reader")
        .cpu("1")
        .pod_annotation(RUN_SECONDS, "1")
        .with_("spec.template.spec.volumes", volumes)
        .build()
    )


def message(stage: Stage, name: str) -> str:
    fluxjob = stage.row(name).fluxjob
    return fluxjob.status.message if fluxjob is not None else ""


def test_replicas_with_one_host_port_run_on_different_nodes(stage: Stage) -> None:
    stage.apply(deployment("listens", 2, 8080))
    rows = stage.until_settled()
    assert wrong(rows) == []
    assert len({host for row in rows for host in row.hosts}) == 2


def test_work_waits_for_its_claim_and_runs_on_a_node_that_reaches_its_volume(stage: Stage) -> None:
    stage.apply(job_with("data"))
    waiting = stage.until_reason("reader", Reason.WAITING_FOR_VOLUMES)
    assert f"PersistentVolumeClaim {stage.namespace}/data does not exist" in waiting.status.message
    stage.claim("data", stage.storage_class())
    stage.until("it waits for the volume", lambda: "has no volume yet" in message(stage, "reader"))
    stage.bind("data", "node-5")
    row = stage.until_state("reader", State.COMPLETED)
    assert row.hosts == ["node-5"]
    assert wrong([row]) == []


def test_a_volume_provisioned_for_its_pod_is_on_a_node_that_its_class_allows(stage: Stage) -> None:
    allowed = [{"matchLabelExpressions": [{"key": names.HOSTNAME_LABEL, "values": ["node-6"]}]}]
    stage.claim(
        "data", stage.storage_class(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=allowed)
    )
    stage.apply(job_with("data"))
    path = f"/api/v1/namespaces/{stage.namespace}/persistentvolumeclaims/data"

    def wanted_on() -> str | None:
        annotations = stage.cluster.control_plane.client.get(path)["metadata"].get("annotations") or {}
        return annotations.get("volume.kubernetes.io/selected-node")

    assert stage.until("the scheduler wants a volume", wanted_on) == "node-6"
    stage.bind("data", "node-6")
    row = stage.until_state("reader", State.COMPLETED)
    assert row.hosts == ["node-6"]
    assert wrong([row]) == []
