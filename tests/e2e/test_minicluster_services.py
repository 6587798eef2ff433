"""The services pod of a MiniCluster: matched, released, evicted and ended with its gang."""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import Json, make_job
from support.end_to_end import Stage
from support.minicluster_stage import (
    RUN_SECONDS,
    apply,
    delete_all,
    minicluster,
    mounted,
    nodes_of,
    raw_pods,
    seen,
    until_state,
)

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.hostlists import decode


@pytest.fixture(autouse=True)
def _none_left(stage: Stage) -> Iterator[None]:
    """Delete what a test leaves before its namespace is checked."""
    yield
    delete_all(stage)


def with_services(name: str, size: int = 2, cpu: str = "2", services_cpu: str = "2", **spec: Any) -> Json:
    container = {
        "name": "registry",
        "image": "registry",
        "resources": {"requests": {"cpu": services_cpu}, "limits": {"cpu": services_cpu}},
    }
    return minicluster(name, size, cpu=cpu, services=[container], **spec)


def services_pods(stage: Stage, name: str) -> list[Json]:
    found = stage.cluster.control_plane.client.get(f"/api/v1/namespaces/{stage.namespace}/pods")["items"]
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-services")]


def gated(pod: Json) -> bool:
    return names.GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def until_services_run(stage: Stage, name: str, within_s: float = 90) -> Json:
    stage.until(
        f"the services pod of {name} runs",
        lambda: [pod["status"].get("phase") for pod in services_pods(stage, name)] == ["Running"],
        within_s,
        lambda: services_pods(stage, name),
    )
    return services_pods(stage, name)[0]


def test_the_services_pod_is_matched_with_its_gang_and_ends_with_it(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(6).cpu("7").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("busy", State.RUNNING)
    # Two nodes are free: enough for the brokers, but not for the services pod.
    apply(stage, with_services("flux", cpu="7", services_cpu="5"))
    stage.until("the services pod is there", lambda: len(services_pods(stage, "flux")) == 1)
    waiting = until_state(stage, "flux", "Queued")
    assert gated(services_pods(stage, "flux")[0])
    assert raw_pods(stage, "flux") == []
    assert waiting.status.nodes == ""
    (row,) = stage.until(
        "it has a FluxJob", lambda: [job for job in stage.fluxjobs() if job.spec.object_ref.name == "flux"]
    )
    assert row.spec.pods == 3
    assert all(not job.spec.object_ref.name.startswith("flux-services") for job in stage.fluxjobs())
    reported = stage.plugin("explain", "pod/flux-services").stdout
    assert "2 pods, each with 7 cpu, and a services pod, together" in reported

    stage.succeed("busy")
    running = until_state(stage, "flux", "Running", 40)
    services_pod = until_services_run(stage, "flux")
    nodes = nodes_of(stage, "flux")
    assert decode(running.status.nodes) == nodes
    assert services_pod["spec"]["nodeName"] not in nodes
    assert services_pod["metadata"]["labels"][names.JOBID_LABEL] == running.status.jobid
    configuration = tomllib.loads(
        mounted(stage, raw_pods(stage, "flux")[0], "ConfigMap")["data"]["broker.toml"]
    )
    assert configuration["bootstrap"]["hosts"] == [{"host": "flux-[0-1]"}]

    for pod in raw_pods(stage, "flux"):
        stage.end_pod(pod["metadata"]["name"])
    until_state(stage, "flux", "Succeeded", 40)
    stage.until("it went with its gang", lambda: not services_pods(stage, "flux"), 30)
    ended = State.COMPLETED
    stage.until(
        "its workload is over",
        lambda: [job.status.state for job in stage.fluxjobs() if job.spec.pods == 3] == [ended],
        30,
    )


def test_the_services_pod_is_evicted_with_its_gang(stage: Stage) -> None:
    apply(stage, with_services("flux"))
    until_state(stage, "flux", "Running", 30)
    first = until_services_run(stage, "flux")
    stage.kubectl("patch", "job", "flux", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    stage.until(
        "another waits in its place",
        lambda: (
            [
                gated(pod)
                for pod in services_pods(stage, "flux")
                if pod["metadata"]["uid"] != first["metadata"]["uid"]
            ]
            == [True]
        ),
        30,
        lambda: services_pods(stage, "flux"),
    )
    assert len(services_pods(stage, "flux")) == 1
    stage.kubectl("patch", "job", "flux", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    until_state(stage, "flux", "Running", 40)
    assert until_services_run(stage, "flux")["metadata"]["uid"] != first["metadata"]["uid"]
    stage.until_consistent()


def test_the_replacement_of_a_deleted_services_pod_gets_its_slot(stage: Stage) -> None:
    apply(stage, with_services("flux"))
    running = until_state(stage, "flux", "Running", 30)
    first = until_services_run(stage, "flux")
    stage.kubectl("delete", "pod", "flux-services", "--wait=true", "--timeout=30s")
    again = until_services_run(stage, "flux")
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["spec"]["nodeName"] == first["spec"]["nodeName"]
    assert seen(stage, "flux").status.jobid == running.status.jobid


def test_pending_services_are_created_again_after_an_edit_and_removed_when_cancelled(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("busy", State.RUNNING)
    apply(stage, with_services("flux"))
    stage.until("the services pod is there", lambda: len(services_pods(stage, "flux")) == 1)
    apply(stage, with_services("flux", services_cpu="3"))
    stage.until(
        "it asks for what is wanted now",
        lambda: (
            [
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                for pod in services_pods(stage, "flux")
            ]
            == ["3"]
        ),
        30,
        lambda: services_pods(stage, "flux"),
    )
    stage.until(
        "its Job is in the queue again",
        lambda: any(job.spec.object_ref.name == "flux" for job in stage.fluxjobs()),
    )
    assert stage.plugin("cancel", "job/flux").returncode == 0
    until_state(stage, "flux", "Cancelled")
    stage.until("no services pod is left", lambda: not services_pods(stage, "flux"), 30)
