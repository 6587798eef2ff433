"""MiniClusters on the stage of an end-to-end test: made, watched, and removed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from support.builders import Json, make_minicluster
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniCluster

COLLECTION = (
    f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/{{}}/{names.MINICLUSTERS}"
)
RUN_SECONDS = "fluxqueue.local/run-seconds"


def minicluster(name: str, size: int = 4, seconds: str = "forever", cpu: str = "2", **spec: Any) -> Json:
    """Return a MiniCluster whose brokers run for some seconds."""
    made = make_minicluster(name, size, **{"pod": {"annotations": {RUN_SECONDS: seconds}}, **spec})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return made


def apply(stage: Stage, thing: Json, check: bool = True) -> Any:
    """Apply an object in the namespace of the stage."""
    return stage.kubectl("apply", "-f", "-", stdin=json.dumps(thing), check=check)


def seen(stage: Stage, name: str) -> MiniCluster:
    """Return a MiniCluster as it is now."""
    return msgspec.convert(
        stage.cluster.control_plane.client.get(f"{COLLECTION.format(stage.namespace)}/{name}"), MiniCluster
    )


def until_state(stage: Stage, name: str, state: str, within_s: float = 90) -> MiniCluster:
    """Wait until a MiniCluster is in a state."""

    def reached() -> MiniCluster | None:
        return in_state if (in_state := seen(stage, name)).status.state == state else None

    in_state = stage.until(
        f"MiniCluster {name} is {state}", reached, within_s, lambda: seen(stage, name).status
    )
    assert in_state is not None
    return in_state


def raw_pods(stage: Stage, job: str) -> list[Json]:
    """Return the brokers' pods by index."""
    client = stage.cluster.control_plane.client
    pods = client.get(f"/api/v1/namespaces/{stage.namespace}/pods")["items"]
    own = [
        pod
        for pod in pods
        if pod["metadata"].get("labels", {}).get(names.JOB_NAME_LABEL) == job
        and "deletionTimestamp" not in pod["metadata"]
    ]
    return sorted(own, key=lambda pod: int(pod["metadata"]["annotations"][names.COMPLETION_INDEX_ANNOTATION]))


def nodes_of(stage: Stage, job: str) -> list[str]:
    """Return the nodes of a Job's pods by index."""
    return [pod["spec"].get("nodeName", "") for pod in raw_pods(stage, job)]


def mounted(stage: Stage, pod: Json, kind: str) -> Json:
    """Return the ConfigMap or Secret that a broker's pod mounts."""
    field, key, plural = {
        "ConfigMap": ("configMap", "name", "configmaps"),
        "Secret": ("secret", "secretName", "secrets"),
    }[kind]
    (name,) = [volume[field][key] for volume in pod["spec"]["volumes"] if field in volume]
    volume_source: Json = stage.cluster.control_plane.client.get(
        f"/api/v1/namespaces/{stage.namespace}/{plural}/{name}"
    )
    return volume_source


def gone(stage: Stage, name: str) -> None:
    """Delete a MiniCluster and wait until it has no pods."""
    stage.kubectl("delete", "minicluster", name, "--wait=true", "--timeout=60s")
    stage.until(f"nothing of {name} is left", lambda: not raw_pods(stage, name), 60)


def delete_all(stage: Stage) -> None:
    """Delete what a test leaves."""
    if stage.cluster.control_plane.client.get(COLLECTION.format(stage.namespace))["items"]:
        stage.kubectl("delete", "minicluster", "--all", "--wait=true", "--timeout=60s")
