"""Objects of a MiniCluster that depend on the spec, in addition to the golden files."""

from __future__ import annotations

from typing import Any

import pytest
from support.minicluster_builders import IMAGE, Json, certificate, kinds, minicluster, one, shares

from fluxqueue.api import names
from fluxqueue.minicluster.overlay import merge_template
from fluxqueue.minicluster.render import objects
from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE


def rendered(**spec: Any) -> list[Json]:
    cluster = minicluster(**spec)
    return objects(
        cluster, certificate=certificate(), image=IMAGE, shares=shares(cluster.spec.size), rest_token="secret"
    )


def job(**spec: Any) -> Json:
    found: Json = one(rendered(**spec), "Job")["spec"]
    return found


def test_the_configuration_waits_for_the_allocation() -> None:
    assert kinds(objects(minicluster(), certificate=None, image=IMAGE)) == [
        ("Service", "lammps"),
        ("Job", "lammps"),
    ]


def test_the_job_waits_gated_and_its_pods_are_replaced_only_when_a_broker_was_lost() -> None:
    spec = job()
    assert spec["suspend"] is True
    assert spec["template"]["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    disrupted, failed = spec["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Ignore"
    assert failed == {
        "action": "FailJob",
        "onExitCodes": {"containerName": "lammps", "operator": "NotIn", "values": [EXIT_REPLACEABLE]},
    }


def test_the_cluster_ends_with_its_leader_unless_it_has_a_post_hook() -> None:
    assert job()["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert "successPolicy" not in job(
        containers=[{"image": "a", "command": "b", "commands": {"post": "echo"}}]
    )


def test_pods_are_named_before_they_are_ready() -> None:
    service = one(rendered(), "Service")["spec"]
    assert service == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": "lammps"},
    }


def test_two_clusters_of_one_name_have_objects_of_their_own() -> None:
    first, second = (
        {
            name
            for kind, name in kinds(
                objects(minicluster(uid=uid), certificate=certificate(), image=IMAGE, shares=shares(4))
            )
        }
        for uid in ("one", "two")
    )
    assert first & second == {"lammps"}


def test_a_container_has_its_own_volumes_only_and_a_config_map_is_named_as_its_mount() -> None:
    containers = [
        {
            "image": "a",
            "runFlux": True,
            "command": "x",
            "volumes": {"data": {"claimName": "d", "path": "/here"}},
        },
        {
            "name": "side",
            "image": "b",
            "volumes": {
                "data": {"claimName": "d", "path": "/there", "readOnly": True},
                "inputs": {"configMapName": "cm", "path": "/in", "items": {"a": "b"}},
            },
        },
    ]
    pod = job(containers=containers)["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/here"}]
    assert pod["initContainers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/there", "readOnly": True},
        {"name": "inputs", "mountPath": "/in"},
    ]
    assert pod["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
        {"name": "inputs", "configMap": {"name": "cm", "items": [{"key": "a", "path": "b"}]}},
    ]


def test_pod_fields_reach_the_brokers_and_the_services_pod_alike() -> None:
    pod = {
        "labels": {"team": "sim"},
        "annotations": {"note": "x"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "schedulerName": "other",
        "serviceAccountName": "runner",
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "nodeAffinity": {"zone": ["a", "b"]},
        "hostIPC": True,
    }
    objects_ = rendered(
        pod=pod, services=[{"name": "db", "image": "db", "imagePullSecret": "pull", "command": "serve --all"}]
    )
    services = one(objects_, "Pod", "lammps-services")
    template = one(objects_, "Job")["spec"]["template"]
    for meta, spec in ((services["metadata"], services["spec"]), (template["metadata"], template["spec"])):
        assert meta["labels"]["team"] == "sim"
        assert meta["annotations"]["note"] == "x"
        assert spec["nodeSelector"] == {"disk": "fast"}
        assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
        assert spec["securityContext"] == {"runAsUser": 1000, "fsGroup": 1000}
        assert spec["serviceAccountName"] == "runner"
        assert spec["hostIPC"] is True
        assert spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
    assert services["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert services["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert services["spec"]["containers"][0]["command"] == ["serve", "--all"]
    assert (services["spec"]["hostname"], services["spec"]["subdomain"]) == ("lammps-services", "lammps")


def test_a_pod_template_is_merged_but_cannot_remove_the_injection() -> None:
    overlay = {
        "metadata": {"annotations": {names.INJECTION_ANNOTATION: "forged", "mine": "1"}},
        "spec": {
            "priorityClassName": "high",
            "containers": [
                {"name": "lammps", "env": [{"name": "A", "value": "1"}]},
                {"name": "extra", "image": "e"},
            ],
        },
    }
    template = job(podTemplate=overlay)["template"]
    assert template["metadata"]["annotations"]["mine"] == "1"
    assert template["metadata"]["annotations"][names.INJECTION_ANNOTATION].startswith("{")
    assert template["spec"]["priorityClassName"] == "high"
    assert [container["name"] for container in template["spec"]["containers"]] == ["lammps", "extra"]
    assert template["spec"]["containers"][0]["image"] == "app:1"


def test_a_cluster_with_rest_opens_only_declared_ports() -> None:
    objects_ = rendered(containers=[{"image": "a", "ports": [8888]}], restful={"port": 9000})
    assert ("Service", "lammps-rest") in kinds(objects_)
    ingress = one(objects_, "NetworkPolicy")["spec"]["ingress"]
    assert ingress[0] == {"from": [{"podSelector": {"matchLabels": {"job-name": "lammps"}}}]}
    assert [port["port"] for port in ingress[1]["ports"]] == [8888, 9000]
    assert len([kind for kind, _ in kinds(objects_) if kind == "Secret"]) == 2
    assert not [
        kind
        for kind, _ in kinds(rendered(interactive=True, containers=[{"image": "a"}]))
        if kind == "NetworkPolicy"
    ]


def test_state_gets_time_to_be_saved() -> None:
    pod = job(state={"volume": {"claimName": "kept", "path": "/state"}})["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 120
    assert {"name": "flux-state", "mountPath": "/state"} in pod["containers"][0]["volumeMounts"]


def test_no_rendered_value_is_empty() -> None:
    def empty(value: Any, path: str) -> list[str]:
        if value is None:
            return [path]
        if isinstance(value, dict):
            return [each for key, inner in value.items() for each in empty(inner, f"{path}/{key}")]
        if isinstance(value, list):
            return [each for place, inner in enumerate(value) for each in empty(inner, f"{path}/{place}")]
        return []

    assert empty(rendered(services=[{"name": "db", "image": "db"}], restful={"enabled": True}), "") == []


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "b", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]},
        ),
    ],
)
def test_templates_are_laid_over_as_kubernetes_merges_them(base: Json, over: Json, merged: Json) -> None:
    assert merge_template(base, over) == merged


def batch_pod(logs: str = "/tmp/fluxout", *, read_only: bool = True, batch: bool = True, **spec: Any) -> Json:
    container = {
        "image": "a",
        "command": "true",
        "batch": batch,
        "logs": logs,
        "securityContext": {"readOnlyRootFilesystem": read_only},
    }
    return dict(job(containers=[container | spec])["template"]["spec"])


def test_a_batch_with_a_read_only_root_has_a_volume_for_its_output() -> None:
    pod = batch_pod()
    assert pod["volumes"] == [{"name": "flux-logs", "emptyDir": {}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "flux-logs", "mountPath": "/tmp/fluxout"}]


@pytest.mark.parametrize(
    "pod",
    [
        {"read_only": False},
        {"batch": False},
        {"logs": "/data/logs/now", "volumes": {"data": {"claimName": "d", "path": "/data"}}},
    ],
)
def test_no_volume_for_output_is_added_where_it_can_be_written_or_there_is_none(pod: dict[str, Any]) -> None:
    assert "flux-logs" not in [volume["name"] for volume in batch_pod(**pod).get("volumes", [])]


def test_a_read_only_root_of_the_pod_template_counts_too() -> None:
    container = {"image": "a", "command": "true", "batch": True}
    template = {
        "spec": {"containers": [{"name": "lammps", "securityContext": {"readOnlyRootFilesystem": True}}]}
    }
    assert [
        volume["name"]
        for volume in job(containers=[container], podTemplate=template)["template"]["spec"]["volumes"]
    ] == ["flux-logs"]
