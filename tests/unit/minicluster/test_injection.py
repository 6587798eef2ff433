"""Injection: what is added to a pod, what stays, and that admission may run twice."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.json_patches import apply_patch
from support.minicluster_builders import IMAGE, UID, Json, minicluster, one

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.minicluster.injection import REST_CONTAINER, index_of, inject, inject_patch
from fluxqueue.minicluster.injection_settings import (
    InjectionSettings,
    InvalidInjection,
    annotated_minicluster,
    injection_settings_of_job,
    injection_settings_of_pod,
)
from fluxqueue.minicluster.render import FluxCluster, admitted_pods, annotated_objects, objects

JOB_POD = ObjectMeta(
    namespace="default",
    labels={"batch.kubernetes.io/job-name": "sim", "batch.kubernetes.io/controller-uid": UID},
    annotations={"fluxqueue/minicluster": "true", "batch.kubernetes.io/job-completion-index": "2"},
)


def job_pod_spec() -> Json:
    return {
        "containers": [
            {
                "name": "app",
                "image": "sim:1",
                "command": ["sim", "a b", "$X"],
                "args": ["--in", "it's"],
                "env": [{"name": "A", "value": "1"}],
                "fieldFromTheFuture": {"kept": [1, {"as": "is"}]},
            },
            {"name": "other", "image": "other:1", "command": ["other"]},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "restartPolicy": "Never",
        "hostname": "sim-2",
        "alsoNew": True,
    }


def marks(meta: ObjectMeta = JOB_POD) -> InjectionSettings:
    found = injection_settings_of_pod(meta, "app")
    assert found is not None
    return found


def template(**spec: Any) -> tuple[Json, InjectionSettings]:
    cluster = minicluster(**spec)
    job = one(objects(cluster, certificate=None, image=IMAGE), "Job")
    written = job["spec"]["template"]
    meta = msgspec.convert(written["metadata"], ObjectMeta)
    found = injection_settings_of_pod(meta, "")
    assert found is not None
    return written["spec"], found


def test_a_pod_without_the_annotation_is_no_flux_cluster() -> None:
    assert (
        injection_settings_of_pod(ObjectMeta(annotations={"fluxqueue/minicluster": "false"}), "app") is None
    )
    assert injection_settings_of_pod(ObjectMeta(), "app") is None


def test_the_words_of_a_command_stay_as_they_are_behind_the_wrapper() -> None:
    runner = inject(job_pod_spec(), marks(), 2)["containers"][0]
    assert runner["command"] == ["/bin/bash", "/flux_operator/run.sh", "sim", "a b", "$X", "--in", "it's"]
    assert "args" not in runner
    assert runner["env"] == [{"name": "A", "value": "1"}]
    assert runner["fieldFromTheFuture"] == {"kept": [1, {"as": "is"}]}


def test_what_is_not_flux_is_not_touched() -> None:
    before = job_pod_spec()
    after = inject(before, marks(), 2)
    assert before == job_pod_spec()
    assert after["containers"][1] == before["containers"][1]
    assert after["alsoNew"] is True
    assert after["volumes"][0] == {"name": "data", "emptyDir": {}}


def test_admission_may_run_twice() -> None:
    once = inject(job_pod_spec(), marks(), 2)
    assert inject(once, marks(), 2) == once
    assert inject_patch(once, marks(), 2) == []


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"restful": {"enabled": True}},
        {"flux": {"container": {"disable": True}}},
        {
            "containers": [
                {
                    "image": "app:1",
                    "runFlux": True,
                    "command": "x",
                    "volumes": {"data": {"claimName": "d", "path": "/d"}},
                },
                {"name": "web", "image": "nginx", "ports": [80]},
            ]
        },
    ],
)
@pytest.mark.parametrize("index", [None, 0, 1])
def test_the_patch_has_exactly_the_changes_of_the_injection(spec: dict[str, Any], index: int | None) -> None:
    before, found = template(**spec)
    operations = inject_patch(before, found, index)
    patched = apply_patch({"spec": before}, json.loads(msgspec.json.encode(operations)))
    assert patched == {"spec": inject(before, found, index)}
    assert all(
        operation.op == "add" or operation.path.startswith("/spec/containers/") for operation in operations
    )


def test_the_certificate_is_mounted_into_the_brokers_container_only() -> None:
    before, found = template(
        containers=[
            {"image": "a", "runFlux": True, "command": "x"},
            {"name": "side", "image": "b", "command": "y"},
        ]
    )
    after = inject(before, found, 0)
    holders = [
        each["name"]
        for each in [*after["containers"], *after["initContainers"]]
        if any(mount["name"] == "flux-curve" for mount in each["volumeMounts"])
    ]
    assert holders == ["lammps"]


def test_the_view_comes_first_and_sidecars_behind_it_find_flux() -> None:
    before, found = template(
        containers=[
            {"image": "a", "runFlux": True, "command": "x"},
            {"name": "side", "image": "b", "command": "y"},
        ]
    )
    view, side = inject(before, found, 3)["initContainers"]
    assert view["name"] == "flux-view"
    assert side["restartPolicy"] == "Always"
    assert side["command"] == ["/bin/bash", "/flux_operator/start.sh", "side"]
    assert {mount["mountPath"] for mount in side["volumeMounts"]} == {
        "/flux_operator",
        "/mnt/flux",
        "/opt/software",
    }


def test_a_sidecar_that_keeps_its_entrypoint_keeps_it() -> None:
    before, found = template(
        containers=[
            {"image": "a", "runFlux": True, "command": "x"},
            {"name": "web", "image": "nginx", "noWrapEntrypoint": True},
        ]
    )
    web = inject(before, found, 0)["initContainers"][1]
    assert "command" not in web


def test_an_image_with_flux_needs_no_view() -> None:
    before, found = template(flux={"container": {"disable": True}})
    after = inject(before, found, 0)
    assert "initContainers" not in after
    assert all(volume["name"] != "flux-software" for volume in after["volumes"])


def test_the_rest_service_runs_only_next_to_the_leader_and_counts_in_the_jobspec() -> None:
    before, found = template(containers=[{"image": "a"}])
    beside = {
        index: [each["name"] for each in inject(before, found, index)["initContainers"]]
        for index in (None, 0, 1)
    }
    assert beside == {None: ["flux-view", REST_CONTAINER], 0: ["flux-view", REST_CONTAINER], 1: ["flux-view"]}


@pytest.mark.parametrize(
    ("container", "pod", "user"),
    [
        ({"runAsUser": 1234}, {"runAsUser": 9}, 1234),
        ({}, {"runAsUser": 1234, "runAsNonRoot": True}, 1234),
        ({}, {}, 0),
    ],
)
def test_the_rest_service_is_the_user_the_broker_is(container: Json, pod: Json, user: int) -> None:
    before, found = template(
        containers=[{"image": "a", "securityContext": container}], pod={"securityContext": pod}
    )
    rest = inject(before, found, 0)["initContainers"][-1]
    assert rest["securityContext"]["runAsUser"] == user


def test_names_follow_from_the_pod_and_are_those_of_the_objects() -> None:
    found = marks()
    cluster = annotated_minicluster("sim", "default", UID, 4, {}, "app")
    assert (
        found
        == injection_settings_of_job("sim", "default", UID, {}, "app")
        == FluxCluster.of_job(cluster).injection
    )
    rendered = annotated_objects(cluster, certificate=None, shares=[])
    assert one(rendered, "ConfigMap")["metadata"]["name"] == found.files
    assert one(rendered, "Service")["metadata"]["name"] == found.service
    owner = one(rendered, "Service")["metadata"]["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == ("batch/v1", "Job", UID)


def test_two_runs_of_one_name_share_nothing() -> None:
    first, second = (injection_settings_of_job("sim", "default", uid, {}, "app") for uid in ("a", "b"))
    assert not {first.files, first.certificate, first.service} & {
        second.files,
        second.certificate,
        second.service,
    }


def test_a_subdomain_of_ones_own_stays() -> None:
    assert inject({**job_pod_spec(), "subdomain": "mine"}, marks(), 2)["subdomain"] == "mine"
    assert inject(job_pod_spec(), marks(), 2)["subdomain"] == marks().service


def test_a_probe_of_ones_own_stays() -> None:
    spec = job_pod_spec()
    spec["containers"][0]["readinessProbe"] = {"httpGet": {"port": 1}}
    assert inject(spec, marks(), 2)["containers"][0]["readinessProbe"] == {"httpGet": {"port": 1}}


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"fluxqueue/minicluster-mode": "batch"}, "may be single, launcher, session"),
        ({"fluxqueue/minicluster-tasks": "-1"}, "number of tasks"),
        ({"fluxqueue/minicluster-injection": "{"}, "cannot be read"),
    ],
)
def test_annotations_without_a_meaning_are_refused(annotations: dict[str, str], problem: str) -> None:
    meta = msgspec.structs.replace(JOB_POD, annotations={**(JOB_POD.annotations or {}), **annotations})
    with pytest.raises(InvalidInjection, match=problem):
        injection_settings_of_pod(meta, "app")


def test_a_pod_that_no_job_made_is_refused() -> None:
    with pytest.raises(InvalidInjection, match="not made by one"):
        injection_settings_of_pod(ObjectMeta(annotations={"fluxqueue/minicluster": "true"}), "app")


def test_a_command_that_only_the_image_knows_is_refused() -> None:
    spec = job_pod_spec()
    del spec["containers"][0]["command"], spec["containers"][0]["args"]
    with pytest.raises(InvalidInjection, match="set the command"):
        inject(spec, marks(), 2)
    with pytest.raises(InvalidInjection, match="no container 'app'"):
        inject({"containers": [{"name": "x"}]}, marks(), 2)


def test_the_index_is_read_from_the_annotation() -> None:
    assert index_of(JOB_POD.annotations) == 2
    assert index_of(None) is None


def test_pods_are_shown_as_admission_would_make_them() -> None:
    pods = admitted_pods(minicluster(size=2), IMAGE)
    assert [pod["spec"]["hostname"] for pod in pods] == ["lammps-0", "lammps-1"]
    assert all(pod["spec"]["schedulingGates"] == [{"name": "fluxqueue"}] for pod in pods)
    assert all(pod["spec"]["containers"][0]["command"][1] == "/flux_operator/run.sh" for pod in pods)
