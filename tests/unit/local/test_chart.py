from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluxqueue.local.chart import ChartError, Variable, expand, read_pod, relocate
from fluxqueue.local.probes import Probe
from fluxqueue.local.volumes import VolumeSource

Json = dict[str, Any]


def deployment(container: Json | None = None, **spec: Any) -> Json:
    main = {"name": "queue", "args": ["queue"], **(container or {})}
    template = {"metadata": {"labels": {"app": "queue"}}, "spec": {"containers": [main], **spec}}
    return {"metadata": {"name": "fluxqueue-queue"}, "spec": {"template": template}}


def test_a_container_without_a_command_runs_the_images_entry_point() -> None:
    (container,) = read_pod(deployment({"args": ["queue", "--port", 8080]}), "ns").containers
    assert container.command == ()
    assert container.arguments == ("queue", "--port", "8080")


def test_variables_come_from_texts_secrets_config_maps_and_fields() -> None:
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "EMPTY"},
        {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
        {
            "name": "LEVEL",
            "valueFrom": {"configMapKeyRef": {"name": "config", "key": "level", "optional": True}},
        },
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    assert read_pod(deployment({"env": env}), "ns").containers[0].variables == (
        Variable("PLAIN", value="x"),
        Variable("EMPTY"),
        Variable("DATABASE_URL", kind="secrets", source="db", key="url"),
        Variable("LEVEL", kind="configmaps", source="config", key="level", optional=True),
        Variable("POD", kind="field", key="metadata.name"),
    )


def test_volumes_keep_their_items_modes_and_whether_they_may_be_missing() -> None:
    volumes = [
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "tls", "secret": {"secretName": "webhook-tls", "optional": True, "defaultMode": 0o400}},
        {
            "name": "config",
            "configMap": {"name": "queue", "items": [{"key": "queue.yaml", "path": "conf/queue.yaml"}]},
        },
    ]
    assert read_pod(deployment(volumes=volumes), "ns").volumes == {
        "tmp": None,
        "tls": VolumeSource("secrets", "ns", "webhook-tls", optional=True, mode=0o400),
        "config": VolumeSource("configmaps", "ns", "queue", items={"queue.yaml": "conf/queue.yaml"}),
    }


@pytest.mark.parametrize(
    ("spec", "account", "token"),
    [
        pytest.param({"serviceAccountName": "queue"}, "queue", True, id="named"),
        pytest.param({}, "default", True, id="the namespace's"),
        pytest.param(
            {"serviceAccountName": "webhook", "automountServiceAccountToken": False},
            "webhook",
            False,
            id="no token is mounted",
        ),
    ],
)
def test_a_token_is_mounted_unless_the_pod_wants_none(spec: Json, account: str, token: bool) -> None:
    pod = read_pod(deployment(**spec), "ns")
    assert (pod.service_account, pod.containers[0].token) == (account, token)


def test_a_projected_token_is_seen_by_the_containers_that_mount_it() -> None:
    made = deployment(
        {"volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]},
        automountServiceAccountToken=False,
        volumes=[{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    )
    made["spec"]["template"]["spec"]["containers"].append({"name": "beside"})
    pod = read_pod(made, "ns")
    assert {container.name: container.token for container in pod.containers} == {
        "queue": True,
        "beside": False,
    }
    assert pod.volumes == {"token": None}


def test_probes_find_ports_by_name() -> None:
    container = {
        "ports": [{"name": "https", "containerPort": 9443}, {"containerPort": 4242}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"},
            "timeoutSeconds": 5,
        },
        "livenessProbe": {"tcpSocket": {"port": 4242}},
        "startupProbe": {"exec": {"command": ["true"]}},
    }
    (read,) = read_pod(deployment(container), "ns").containers
    assert read.ports == {"https": 9443, "4242": 4242}
    assert read.readiness == Probe(port=9443, path="/readyz", tls=True, timeout_s=5)
    assert read.liveness == Probe(port=4242)
    assert read.startup == Probe(command=("true",))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        pytest.param(
            deployment(volumes=[{"name": "disk", "persistentVolumeClaim": {}}]),
            "volume disk is a persistentVolumeClaim",
            id="disk",
        ),
        pytest.param(
            deployment({"env": [{"name": "N", "valueFrom": {"resourceFieldRef": {}}}]}),
            "variable N comes from",
            id="resources",
        ),
        pytest.param(
            deployment({"envFrom": [{"secretRef": {"name": "s"}}]}), "name the variables", id="a whole Secret"
        ),
    ],
)
def test_an_unsupported_field_is_refused_by_name(made: Json, message: str) -> None:
    with pytest.raises(ChartError, match=f"Deployment fluxqueue-queue: .*{message}"):
        read_pod(made, "ns")


def test_references_are_expanded_as_the_kubelet_does() -> None:
    assert (
        expand("postgres://$(HOST):$(PORT)/$(UNKNOWN)", {"HOST": "db", "PORT": "5432"})
        == "postgres://db:5432/$(UNKNOWN)"
    )


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("/etc/fluxqueue/queue.yaml", "/plane/config/queue.yaml"),
        ("--config=/etc/fluxqueue", "--config=/plane/config"),
        ("/etc/fluxqueue/tls:/tmp", "/plane/tls:/plane/tmp"),
        ("/etc/fluxqueue-other/x", "/etc/fluxqueue-other/x"),
        ("/srv/etc/fluxqueue", "/srv/etc/fluxqueue"),
        ("https://example.com/tmp", "https://example.com/tmp"),
    ],
)
def test_mount_paths_become_our_folders_and_nothing_else_does(word: str, found: str) -> None:
    folders = [
        ("/etc/fluxqueue", Path("/plane/config")),
        ("/etc/fluxqueue/tls", Path("/plane/tls")),
        ("/tmp", Path("/plane/tmp")),
    ]
    assert relocate(word, folders) == found
