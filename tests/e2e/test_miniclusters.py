"""MiniClusters and annotated Jobs through admission, queue and release,
until their brokers are online and an exit code is reported.
"""

import base64
import hashlib
import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from support.builders import make_job
from support.end_to_end import Stage, managed_namespace
from support.minicluster_stage import (
    COLLECTION,
    RUN_SECONDS,
    apply,
    delete_all,
    gone,
    minicluster,
    mounted,
    nodes_of,
    raw_pods,
    seen,
    until_state,
)

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.hostlists import decode
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.certs import curve

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "minicluster").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _none_left(stage: Stage) -> Iterator[None]:
    """Delete what a test leaves before its namespace is checked."""
    yield
    delete_all(stage)


def test_a_minicluster_waits_in_a_busy_queue_and_then_runs_by_rank_on_its_allocation(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("busy", State.RUNNING)
    apply(stage, minicluster("flux", cpu="7", queue="default", duration="10m"))
    waiting = until_state(stage, "flux", "Queued")
    assert waiting.status.brokers == ""
    assert raw_pods(stage, "flux") == []

    stage.succeed("busy")
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


def test_the_status_reports_the_exit_code_and_cleanup_removes_the_ended_pods(stage: Stage) -> None:
    failing = minicluster(
        "failing", 2, pod={"annotations": {RUN_SECONDS: "1", "fluxqueue.local/exit-code": "3"}}
    )
    apply(stage, failing)
    apply(stage, minicluster("passing", 2, "1"))
    apply(stage, minicluster("tidy", 1, "1", cleanup=True))
    assert until_state(stage, "passing", "Succeeded").status.exit_code == 0
    failed = until_state(stage, "failing", "Failed").status
    assert failed.exit_code == 3
    path = f"{COLLECTION.format(stage.namespace)}/tidy"
    stage.until("tidy is gone", lambda: stage.cluster.control_plane.client.find(path) is None, 30)
    gone(stage, "failing")
    gone(stage, "passing")


def test_two_miniclusters_of_one_name_in_two_namespaces_are_independent(stage: Stage) -> None:
    with managed_namespace(stage.cluster) as other:
        for place in (stage, other):
            apply(place, minicluster("twin", 2))
        certificates = []
        for place in (stage, other):
            running = until_state(place, "twin", "Running")
            assert nodes_of(place, "twin") == decode(running.status.nodes)
            certificates.append(mounted(place, raw_pods(place, "twin")[0], "Secret")["data"]["curve.cert"])
        assert certificates[0] != certificates[1]
        gone(other, "twin")
        assert seen(stage, "twin").status.state == "Running"
        gone(stage, "twin")


def test_a_minicluster_deleted_while_it_waits_leaves_nothing(stage: Stage) -> None:
    apply(stage, minicluster("large", 9, cpu="7"))
    until_state(stage, "large", "Queued")

    def reported() -> bool:
        return any(
            seen(stage, "large").status.message == each.status.message != "" for each in stage.fluxjobs()
        )

    stage.until(
        "it says why, as its FluxJob does",
        reported,
        30,
        lambda: (seen(stage, "large").status, stage.fluxjobs()),
    )
    gone(stage, "large")
    stage.until("its FluxJob is gone", lambda: not stage.fluxjobs(), 60)


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.4])
def test_a_queue_killed_at_any_step_of_a_minicluster_continues(stage: Stage, after_s: float) -> None:
    apply(stage, minicluster("steady", 4))
    time.sleep(after_s)  # during its creation, match or release
    stage.kill("queue")
    running = until_state(stage, "steady", "Running", 60)
    assert nodes_of(stage, "steady") == decode(running.status.nodes)
    assert len({mounted(stage, pod, "Secret")["metadata"]["uid"] for pod in raw_pods(stage, "steady")}) == 1
    gone(stage, "steady")


@pytest.mark.parametrize("rank", [0, 2])
def test_the_replacement_of_a_lost_broker_gets_the_node_of_its_rank(stage: Stage, rank: int) -> None:
    apply(stage, minicluster("mended", 3))
    running = until_state(stage, "mended", "Running")
    lost = raw_pods(stage, "mended")[rank]["metadata"]["name"]
    stage.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    stage.until(
        "another pod took its place",
        lambda: lost not in [p["metadata"]["name"] for p in raw_pods(stage, "mended")],
        60,
    )
    stage.until("it is on its node", lambda: nodes_of(stage, "mended") == decode(running.status.nodes), 60)
    gone(stage, "mended")


def test_admission_refuses_an_invalid_field_and_warns_about_one_without_effect(stage: Stage) -> None:
    refused = apply(stage, minicluster("odd", 2, duration="soon"), check=False)
    assert refused.returncode != 0
    assert "spec.duration" in refused.stderr
    many = apply(
        stage, minicluster("many", 2, flux={"bursting": {"clusters": [{"size": 9_999}]}}), check=False
    )
    assert "at most 10000 hosts in all" in many.stderr
    deep = json.dumps(minicluster("deep", 2, podTemplate={"spec": "DEEP"})).replace(
        '"DEEP"', '{"a":' * 5_000 + "1" + "}" * 5_000
    )
    assert "nested more than 32 deep" in stage.kubectl("create", "-f", "-", stdin=deep, check=False).stderr
    warned = stage.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=json.dumps(minicluster("old", flux={"arch": "arm"}))
    )
    assert "Warning: spec.flux.arch does nothing" in warned.stderr


def test_an_object_of_another_owner_is_not_adopted_and_the_minicluster_waits(stage: Stage) -> None:
    path = f"/api/v1/namespaces/{stage.namespace}/services/taken"
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "taken"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]},
    }
    stage.apply(theirs)
    before = stage.cluster.control_plane.client.get(path)
    apply(stage, minicluster("taken", 2))
    refused = until_state(stage, "taken", "Invalid").status
    assert f"Service {stage.namespace}/taken already exists" in refused.message
    assert [condition.reason for condition in refused.conditions or () if condition.type == "Valid"] == [
        "Refused"
    ]
    stage.until("an Event says it", lambda: "already exists and" in stage.kubectl("get", "events").stdout)
    assert stage.cluster.control_plane.client.get(path) == before
    assert (
        stage.cluster.control_plane.client.find(f"/apis/batch/v1/namespaces/{stage.namespace}/jobs/taken")
        is None
    )

    stage.apply(make_job("theirs").pod_annotation(RUN_SECONDS, "forever").build())
    apply(stage, minicluster("theirs", 2))
    assert (
        f"Job {stage.namespace}/theirs already exists"
        in until_state(stage, "theirs", "Invalid").status.message
    )
    stage.kubectl("delete", "job", "theirs")
    until_state(stage, "theirs", "Running")
    gone(stage, "theirs")

    stage.kubectl("delete", "service", "taken")
    until_state(stage, "taken", "Running")
    gone(stage, "taken")


def test_a_foreign_configmap_blocks_the_release_and_the_nodes_are_freed_until_then(stage: Stage) -> None:
    stage.apply(make_job("busy").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("busy", State.RUNNING)
    solver = make_job("solver").indexed(4).cpu("7").pod_annotation(RUN_SECONDS, "forever")
    job = solver.annotation(names.MINICLUSTER_ANNOTATION, "true").build()
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["solve"]
    stage.apply(job)
    stage.until_state("solver", State.PENDING)
    uid = stage.job("solver").metadata.uid
    name = f"solver-{hashlib.sha256(uid.encode()).hexdigest()[:5]}-flux"
    stage.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"theirs": "1"}}
    )

    stage.succeed("busy")
    refused = stage.until_reason("solver", Reason.INVALID_REQUEST)
    assert f"ConfigMap {stage.namespace}/{name} already exists" in refused.status.message
    stage.apply(make_job("other").indexed(8).cpu("7").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_state("other", State.COMPLETED)
    stage.kubectl("delete", "configmap", name)
    stage.until_state("solver", State.RUNNING)


def test_a_gang_that_does_not_form_is_requeued_with_the_reason(stage: Stage) -> None:
    silent = minicluster(
        "silent",
        2,
        formTimeoutSeconds=2,
        pod={"annotations": {RUN_SECONDS: "forever", "fluxqueue.local/never-ready": "true"}},
    )
    apply(stage, silent)
    starting = until_state(stage, "silent", "Starting").status
    assert (starting.brokers, [missing.rank for missing in starting.missing or ()]) == ("0/2", [0, 1])
    stage.until(
        "it was taken back", lambda: "did not form within 2 s" in seen(stage, "silent").status.message, 30
    )
    gone(stage, "silent")


def test_the_scale_subresource_resizes_a_minicluster_up_to_its_maximum(stage: Stage) -> None:
    apply(stage, minicluster("elastic", 3, maxSize=4))
    running = until_state(stage, "elastic", "Running").status
    first = decode(running.nodes)
    stage.kubectl("scale", "minicluster", "elastic", "--replicas=2")
    stage.until("the highest rank has gone", lambda: nodes_of(stage, "elastic") == first[:2], 60)
    stage.until("its place is free again", lambda: seen(stage, "elastic").status.brokers == "2/2", 30)
    stage.kubectl("scale", "minicluster", "elastic", "--replicas=4")
    stage.until(
        "four brokers are online",
        lambda: seen(stage, "elastic").status.brokers == "4/4",
        60,
        lambda: seen(stage, "elastic").status,
    )
    assert nodes_of(stage, "elastic")[:2] == first[:2]
    beyond = stage.kubectl("scale", "minicluster", "elastic", "--replicas=5", check=False)
    assert "maxSize" in beyond.stderr or "maximumSize" in beyond.stderr
    stage.until_consistent()
    gone(stage, "elastic")


def test_every_example_passes_admission_queue_and_release(stage: Stage) -> None:
    names_of: list[str] = []
    tidy: set[str] = set()
    for claim in ("shared", "flux-state"):
        stage.claim(claim, "any")
        stage.bind(claim)
    for file in EXAMPLES:
        thing = yaml.safe_load(file.read_text())
        if thing["kind"] != "MiniCluster":
            continue
        apply(stage, thing)
        names_of.append(thing["metadata"]["name"])
        if thing["spec"].get("cleanup"):
            tidy.add(names_of[-1])
    assert len(set(names_of)) == len(names_of) > 15
    released_states = {"Starting", "Running", "Succeeded"}

    def waiting() -> dict[str, str]:
        items = stage.cluster.control_plane.client.get(COLLECTION.format(stage.namespace))["items"]
        states = {each.metadata.name: each.status for each in msgspec.convert(items, list[MiniCluster])}
        # with `cleanup` it is deleted when it has succeeded
        ended = {name for name in tidy if name not in states}
        return {
            name: f"{states[name].state}: {states[name].message}" if name in states else "gone"
            for name in names_of
            if name not in ended and (name not in states or states[name].state not in released_states)
        }

    stage.until("all of them were let go", lambda: not waiting(), 90, waiting)
