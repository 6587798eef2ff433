"""MiniClusters and annotated Jobs through admission, queue and release, to brokers online and an exit code."""

import base64
import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from builders import Json, make_job, make_minicluster
from end_to_end import Stage, managed_namespace

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.hostlists import decode
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.certs import curve

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "minicluster").glob("*.yaml"))
COLLECTION = f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/{{}}/{names.MINICLUSTERS}"
RUN_SECONDS = "fluxqueue.local/run-seconds"


def cluster(name: str, size: int = 4, seconds: str = "forever", cpu: str = "2", **spec: Any) -> Json:
    made = make_minicluster(name, size, **{"pod": {"annotations": {RUN_SECONDS: seconds}}, **spec})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return made


@pytest.fixture(autouse=True)
def _none_left(stage: Stage) -> Iterator[None]:
    """Whatever a test leaves goes before its namespace is judged."""
    yield
    stage.kubectl("delete", "minicluster", "--all", "--wait=true", "--timeout=60s")


def apply(stage: Stage, thing: Json, check: bool = True) -> Any:
    return stage.kubectl("apply", "-f", "-", stdin=json.dumps(thing), check=check)


def seen(stage: Stage, name: str) -> MiniCluster:
    return msgspec.convert(stage.plane.control_plane.client.get(f"{COLLECTION.format(stage.namespace)}/{name}"), MiniCluster)


def until_state(stage: Stage, name: str, state: str, within_s: float = 30) -> MiniCluster:
    stage.until(
        f"MiniCluster {name} is {state}", lambda: seen(stage, name).status.state == state, within_s, lambda: seen(stage, name).status
    )
    return seen(stage, name)


def raw_pods(stage: Stage, job: str) -> list[Json]:
    """The brokers' pods by index."""
    client = stage.plane.control_plane.client
    found = client.get(f"/api/v1/namespaces/{stage.namespace}/pods")["items"]
    own = [
        pod
        for pod in found
        if pod["metadata"].get("labels", {}).get(names.JOB_NAME_LABEL) == job and "deletionTimestamp" not in pod["metadata"]
    ]
    return sorted(own, key=lambda pod: int(pod["metadata"]["annotations"][names.COMPLETION_INDEX_ANNOTATION]))


def nodes_of(stage: Stage, job: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in raw_pods(stage, job)]


def mounted(stage: Stage, pod: Json, kind: str) -> Json:
    """The ConfigMap or Secret that a broker's pod mounts."""
    field, key, plural = {"ConfigMap": ("configMap", "name", "configmaps"), "Secret": ("secret", "secretName", "secrets")}[kind]
    (name,) = [volume[field][key] for volume in pod["spec"]["volumes"] if field in volume]
    found: Json = stage.plane.control_plane.client.get(f"/api/v1/namespaces/{stage.namespace}/{plural}/{name}")
    return found


def gone(stage: Stage, name: str) -> None:
    stage.kubectl("delete", "minicluster", name, "--wait=true", "--timeout=60s")
    stage.until(f"nothing of {name} is left", lambda: not raw_pods(stage, name), 60)


def test_a_minicluster_waits_in_a_busy_queue_and_then_runs_by_rank_on_its_allocation(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "4").build())
    stage.until_state("busy", State.RUNNING)
    apply(stage, cluster("flux", cpu="7", queue="default", duration="10m"))
    waiting = until_state(stage, "flux", "Queued")
    assert waiting.status.brokers == ""
    assert raw_pods(stage, "flux") == []

    running = until_state(stage, "flux", "Running", 40)
    assert running.status.brokers == "4/4"
    assert nodes_of(stage, "flux") == decode(running.status.nodes)
    assert running.status.queue == "default"
    pod = raw_pods(stage, "flux")[0]
    configuration = tomllib.loads(mounted(stage, pod, "ConfigMap")["data"]["broker.toml"])
    assert configuration["bootstrap"]["hosts"] == [{"host": "flux-[0-3]"}]
    assert [group["cores"] for group in configuration["resource"]["config"]] == ["0-6"]
    assert configuration["tbon"]["connect_timeout"] == "2s"
    certificate = base64.b64decode(mounted(stage, pod, "Secret")["data"]["curve.cert"]).decode()
    assert curve.read(certificate).name

    table = stage.kubectl("get", "minicluster", "flux").stdout.splitlines()
    assert table[0].split() == ["NAME", "STATE", "SIZE", "BROKERS", "QUEUE", "NODES", "AGE"]
    assert table[1].split()[:5] == ["flux", "Running", "4", "4/4", "default"]
    gone(stage, "flux")


def test_an_annotated_job_runs_as_a_flux_cluster_on_its_allocation(stage: Stage) -> None:
    job = (
        make_job("solver")
        .indexed(4)
        .cpu("2")
        .pod_annotation(RUN_SECONDS, "forever")
        .annotation(names.MINICLUSTER_ANNOTATION, "true")
        .build()
    )
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["solve", "it's"]
    stage.apply(job)
    row = stage.until_state("solver", State.RUNNING)
    pods = raw_pods(stage, "solver")
    assert nodes_of(stage, "solver") == list(row.hosts)
    assert all(pod["spec"]["containers"][0]["command"][-2:] == ["solve", "it's"] for pod in pods)
    assert "broker.toml" in mounted(stage, pods[0], "ConfigMap")["data"]
    assert "curve.cert" in mounted(stage, pods[0], "Secret")["data"]


def test_the_end_is_told_with_its_exit_code_and_cleanup_removes_what_has_ended(stage: Stage) -> None:
    failing = cluster("failing", 2, pod={"annotations": {RUN_SECONDS: "1", "fluxqueue.local/exit-code": "3"}})
    apply(stage, failing)
    apply(stage, cluster("passing", 2, "1"))
    apply(stage, cluster("tidy", 1, "1", cleanup=True))
    assert until_state(stage, "passing", "Succeeded").status.exit_code == 0
    failed = until_state(stage, "failing", "Failed").status
    assert failed.exit_code == 3
    path = f"{COLLECTION.format(stage.namespace)}/tidy"
    stage.until("tidy is gone", lambda: stage.plane.control_plane.client.find(path) is None, 30)
    gone(stage, "failing")
    gone(stage, "passing")


def test_two_of_one_name_in_two_namespaces_have_nothing_in_common(stage: Stage) -> None:
    with managed_namespace(stage.plane) as other:
        for place in (stage, other):
            apply(place, cluster("twin", 2))
        certificates = []
        for place in (stage, other):
            running = until_state(place, "twin", "Running")
            assert nodes_of(place, "twin") == decode(running.status.nodes)
            certificates.append(mounted(place, raw_pods(place, "twin")[0], "Secret")["data"]["curve.cert"])
        assert certificates[0] != certificates[1]
        gone(other, "twin")
        assert seen(stage, "twin").status.state == "Running"
        gone(stage, "twin")


def test_deleted_while_it_waits_it_leaves_nothing(stage: Stage) -> None:
    apply(stage, cluster("large", 9, cpu="7"))
    until_state(stage, "large", "Queued")

    def told() -> bool:
        return any(seen(stage, "large").status.message == each.status.message != "" for each in stage.fluxjobs())

    stage.until("it says why, as its FluxJob does", told, 30, lambda: (seen(stage, "large").status, stage.fluxjobs()))
    gone(stage, "large")
    stage.until("its FluxJob is gone", lambda: not stage.fluxjobs(), 60)


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4])
def test_a_queue_that_is_killed_at_any_step_goes_on_where_it_was(stage: Stage, after_s: float) -> None:
    apply(stage, cluster("steady", 4))
    time.sleep(after_s)  # into the middle of its making, matching or release
    stage.kill("queue")
    running = until_state(stage, "steady", "Running", 60)
    assert nodes_of(stage, "steady") == decode(running.status.nodes)
    assert len({mounted(stage, pod, "Secret")["metadata"]["uid"] for pod in raw_pods(stage, "steady")}) == 1
    gone(stage, "steady")


def test_a_lost_broker_comes_back_to_the_node_of_its_rank(stage: Stage) -> None:
    apply(stage, cluster("mended", 3))
    running = until_state(stage, "mended", "Running")
    lost = raw_pods(stage, "mended")[2]["metadata"]["name"]
    stage.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    stage.until("another pod took its place", lambda: lost not in [p["metadata"]["name"] for p in raw_pods(stage, "mended")], 60)
    stage.until("it is on its node", lambda: nodes_of(stage, "mended") == decode(running.status.nodes), 60)
    gone(stage, "mended")


def test_a_mistake_is_refused_at_admission_and_what_does_nothing_is_warned_about(stage: Stage) -> None:
    refused = apply(stage, cluster("odd", 2, duration="soon"), check=False)
    assert refused.returncode != 0
    assert "spec.duration" in refused.stderr
    warned = stage.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(cluster("old", flux={"arch": "arm"})))
    assert "Warning: spec.flux.arch does nothing" in warned.stderr


def test_a_gang_that_does_not_form_goes_back_into_the_queue_with_the_reason(stage: Stage) -> None:
    silent = cluster(
        "silent", 2, formTimeoutSeconds=2, pod={"annotations": {RUN_SECONDS: "forever", "fluxqueue.local/never-ready": "true"}}
    )
    apply(stage, silent)
    starting = until_state(stage, "silent", "Starting").status
    assert (starting.brokers, [missing.rank for missing in starting.missing or ()]) == ("0/2", [0, 1])
    stage.until("it was taken back", lambda: "did not form within 2 s" in seen(stage, "silent").status.message, 30)
    gone(stage, "silent")


def test_it_shrinks_and_grows_within_its_maximum_through_the_scale_subresource(stage: Stage) -> None:
    apply(stage, cluster("elastic", 3, maxSize=4))
    running = until_state(stage, "elastic", "Running").status
    first = decode(running.nodes)
    stage.kubectl("scale", "minicluster", "elastic", "--replicas=2")
    stage.until("the highest rank has gone", lambda: nodes_of(stage, "elastic") == first[:2], 60)
    stage.until("its place is free again", lambda: seen(stage, "elastic").status.brokers == "2/2", 30)
    stage.kubectl("scale", "minicluster", "elastic", "--replicas=4")
    stage.until(
        "four brokers are online", lambda: seen(stage, "elastic").status.brokers == "4/4", 60, lambda: seen(stage, "elastic").status
    )
    assert nodes_of(stage, "elastic")[:2] == first[:2]
    beyond = stage.kubectl("scale", "minicluster", "elastic", "--replicas=5", check=False)
    assert "maxSize" in beyond.stderr or "maximumSize" in beyond.stderr
    stage.until_consistent()
    gone(stage, "elastic")


def with_services(name: str, size: int = 2, cpu: str = "2", services_cpu: str = "2", **spec: Any) -> Json:
    container = {"name": "registry", "image": "registry", "resources": {"requests": {"cpu": services_cpu}, "limits": {"cpu": services_cpu}}}
    return cluster(name, size, cpu=cpu, services=[container], **spec)


def services_pods(stage: Stage, name: str) -> list[Json]:
    found = stage.plane.control_plane.client.get(f"/api/v1/namespaces/{stage.namespace}/pods")["items"]
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-services")]


def gated(pod: Json) -> bool:
    return names.GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def until_services_run(stage: Stage, name: str, within_s: float = 30) -> Json:
    stage.until(
        f"the services pod of {name} runs",
        lambda: [pod["status"].get("phase") for pod in services_pods(stage, name)] == ["Running"],
        within_s,
        lambda: services_pods(stage, name),
    )
    return services_pods(stage, name)[0]


def test_the_services_pod_waits_for_room_with_its_gang_and_ends_with_it(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(6).cpu("7").pod_annotation(RUN_SECONDS, "6").build())
    stage.until_state("busy", State.RUNNING)
    # Two nodes are free: enough for the brokers, and not for what is to run beside them.
    brokers_end = {"metadata": {"annotations": {RUN_SECONDS: "5"}}}
    apply(stage, with_services("flux", cpu="7", services_cpu="5", podTemplate=brokers_end))
    stage.until("the services pod is there", lambda: len(services_pods(stage, "flux")) == 1)
    waiting = until_state(stage, "flux", "Queued")
    assert gated(services_pods(stage, "flux")[0])
    assert raw_pods(stage, "flux") == []
    assert waiting.status.nodes == ""
    (row,) = [job for job in stage.fluxjobs() if job.spec.object_ref.name == "flux"]
    assert row.spec.pods == 3
    assert all(not job.spec.object_ref.name.startswith("flux-services") for job in stage.fluxjobs())
    told = stage.plugin("explain", "pod/flux-services").stdout
    assert "2 pods, each with 7 cpu, and a services pod, together" in told

    running = until_state(stage, "flux", "Running", 40)
    beside = until_services_run(stage, "flux")
    nodes = nodes_of(stage, "flux")
    assert decode(running.status.nodes) == nodes
    assert beside["spec"]["nodeName"] not in nodes
    assert beside["metadata"]["labels"][names.JOBID_LABEL] == running.status.jobid
    configuration = tomllib.loads(mounted(stage, raw_pods(stage, "flux")[0], "ConfigMap")["data"]["broker.toml"])
    assert configuration["bootstrap"]["hosts"] == [{"host": "flux-[0-1]"}]

    until_state(stage, "flux", "Succeeded", 40)
    stage.until("it went with its gang", lambda: not services_pods(stage, "flux"), 30)
    ended = State.COMPLETED
    stage.until("its workload is over", lambda: [job.status.state for job in stage.fluxjobs() if job.spec.pods == 3] == [ended], 30)


def test_a_gang_that_is_taken_back_takes_its_services_pod_along(stage: Stage) -> None:
    apply(stage, with_services("flux"))
    until_state(stage, "flux", "Running", 30)
    first = until_services_run(stage, "flux")
    stage.kubectl("patch", "job", "flux", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    stage.until(
        "another waits in its place",
        lambda: [gated(pod) for pod in services_pods(stage, "flux") if pod["metadata"]["uid"] != first["metadata"]["uid"]] == [True],
        30,
        lambda: services_pods(stage, "flux"),
    )
    assert len(services_pods(stage, "flux")) == 1
    stage.kubectl("patch", "job", "flux", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    until_state(stage, "flux", "Running", 40)
    assert until_services_run(stage, "flux")["metadata"]["uid"] != first["metadata"]["uid"]
    stage.until_consistent()


def test_a_services_pod_that_was_deleted_comes_back_to_its_place(stage: Stage) -> None:
    apply(stage, with_services("flux"))
    running = until_state(stage, "flux", "Running", 30)
    first = until_services_run(stage, "flux")
    stage.kubectl("delete", "pod", "flux-services", "--wait=true", "--timeout=30s")
    again = until_services_run(stage, "flux")
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["spec"]["nodeName"] == first["spec"]["nodeName"]
    assert seen(stage, "flux").status.jobid == running.status.jobid


def test_services_edited_while_they_wait_are_made_anew_and_cancelled_ones_go(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("busy", State.RUNNING)
    apply(stage, with_services("flux"))
    stage.until("the services pod is there", lambda: len(services_pods(stage, "flux")) == 1)
    apply(stage, with_services("flux", services_cpu="3"))
    stage.until(
        "it asks for what is wanted now",
        lambda: [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in services_pods(stage, "flux")] == ["3"],
        30,
        lambda: services_pods(stage, "flux"),
    )
    stage.until("its Job is in the queue again", lambda: any(job.spec.object_ref.name == "flux" for job in stage.fluxjobs()))
    assert stage.plugin("cancel", "job/flux").returncode == 0
    until_state(stage, "flux", "Cancelled")
    stage.until("no services pod is left", lambda: not services_pods(stage, "flux"), 30)


def test_every_example_goes_through_admission_queue_and_release(stage: Stage) -> None:
    names_of: list[str] = []
    tidy: set[str] = set()
    for file in EXAMPLES:
        thing = yaml.safe_load(file.read_text())
        if thing["kind"] != "MiniCluster":
            continue
        apply(stage, thing)
        names_of.append(thing["metadata"]["name"])
        if thing["spec"].get("cleanup"):
            tidy.add(names_of[-1])
    assert len(set(names_of)) == len(names_of) > 15
    let_go = {"Starting", "Running", "Succeeded"}

    def waiting() -> dict[str, str]:
        found = stage.plane.control_plane.client.get(COLLECTION.format(stage.namespace))["items"]
        states = {each.metadata.name: each.status for each in msgspec.convert(found, list[MiniCluster])}
        ended = {name for name in tidy if name not in states}  # with `cleanup` it goes when it has ended well
        return {
            name: f"{states[name].state}: {states[name].message}" if name in states else "gone"
            for name in names_of
            if name not in ended and (name not in states or states[name].state not in let_go)
        }

    stage.until("all of them were let go", lambda: not waiting(), 90, waiting)
