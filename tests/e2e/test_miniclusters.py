"""MiniClusters and annotated Jobs through admission, queue and release, to brokers online and an exit code."""

import base64
import json
import tomllib
from typing import Any

import msgspec
from builders import Json, make_job, make_minicluster
from end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.hostlists import decode
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.certs import curve

RUN_SECONDS = "fluxqueue.local/run-seconds"


def cluster(name: str, size: int = 4, seconds: str = "forever", cpu: str = "2", **spec: Any) -> Json:
    made = make_minicluster(name, size, **{"pod": {"annotations": {RUN_SECONDS: seconds}}, **spec})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return made


def apply(stage: Stage, thing: Json, check: bool = True) -> Any:
    return stage.kubectl("apply", "-f", "-", stdin=json.dumps(thing), check=check)


def seen(stage: Stage, name: str) -> MiniCluster:
    path = f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/{stage.namespace}/{names.MINICLUSTERS}/{name}"
    return msgspec.convert(stage.plane.control_plane.client.get(path), MiniCluster)


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
