"""The API server in memory does what the real one does, as far as controllers rely on it."""

from __future__ import annotations

import pytest
from support.builders import make_job, make_pod
from support.memory_api import MemoryApi

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import PatchType


@pytest.fixture
def server() -> MemoryApi:
    return MemoryApi()


async def test_a_created_object_has_an_identity_and_a_version(server: MemoryApi) -> None:
    job = await server.api.create(JOBS, make_job().build(), "default")
    assert job.metadata.uid
    assert (await server.api.get(JOBS, job.metadata.name, "default")).metadata == job.metadata
    with pytest.raises(AlreadyExists):
        await server.api.create(JOBS, make_job().build(), "default")


async def test_what_does_not_exist_is_not_found(server: MemoryApi) -> None:
    with pytest.raises(NotFound):
        await server.api.get(JOBS, "none", "default")
    with pytest.raises(NotFound):
        await server.api.patch(JOBS, "none", {}, namespace="default")
    with pytest.raises(NotFound):
        await server.api.delete(JOBS, "none", namespace="default")


async def test_a_change_of_the_spec_raises_the_generation_and_one_of_labels_does_not(
    server: MemoryApi,
) -> None:
    job = server.put("jobs", make_job().build())
    labelled = await server.api.patch(
        JOBS, job.metadata.name, {"metadata": {"labels": {"a": "b"}}}, namespace="default"
    )
    resumed = await server.api.patch(
        JOBS, job.metadata.name, {"spec": {"suspend": not job.spec.suspend}}, namespace="default"
    )
    assert labelled.metadata.generation == job.metadata.generation
    assert resumed.metadata.generation == job.metadata.generation + 1


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_precondition_that_does_not_hold_is_a_conflict(server: MemoryApi, field: str) -> None:
    server.put("pods", make_pod("p").build())
    with pytest.raises(Conflict):
        await server.api.patch(PODS, "p", {"metadata": {field: "other"}}, namespace="default")


async def test_a_json_patch_whose_test_fails_is_refused(server: MemoryApi) -> None:
    server.put("pods", make_pod("p").build())
    patch = [
        {"op": "test", "path": "/metadata/name", "value": "q"},
        {"op": "add", "path": "/spec/nodeName", "value": "n1"},
    ]
    with pytest.raises(Invalid):
        await server.api.patch(PODS, "p", patch, namespace="default", patch_type=PatchType.JSON)
    assert not server.get("pods", "p")["spec"].get("nodeName")


async def test_a_status_patch_changes_the_status_only(server: MemoryApi) -> None:
    server.put("pods", make_pod("p").build())
    body = {"spec": {"nodeName": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for _ in range(2):
        pod = await server.api.patch(
            PODS, "p", body, namespace="default", patch_type=PatchType.STRATEGIC, subresource="status"
        )
    assert not pod.spec.node_name
    assert [condition.type for condition in pod.status.conditions or ()] == ["Ready"]


async def test_a_status_subresource_takes_the_status_or_does_not_exist(server: MemoryApi) -> None:
    body = {"status": {"phase": "Running"}}
    server.status_subresources["pods"] = True
    created = await server.api.create(PODS, make_pod("p").build() | body, "default")
    patched = await server.api.patch(PODS, "p", body, namespace="default")
    assert (created.status.phase, patched.status.phase) == ("", ""), "dropped without an error"
    assert (
        await server.api.patch(PODS, "p", body, namespace="default", subresource="status")
    ).status.phase == "Running"
    server.status_subresources["pods"] = False
    with pytest.raises(NotFound):
        await server.api.patch(PODS, "p", body, namespace="default", subresource="status")


async def test_a_pod_is_bound_once(server: MemoryApi) -> None:
    pod = server.put("pods", make_pod("p").build())
    meta = pod.metadata
    await server.api.bind("p", "default", "n1", uid=meta.uid, resource_version=meta.resource_version)
    now = server.get("pods", "p")
    assert now["spec"]["nodeName"] == "n1"
    with pytest.raises(Conflict):
        await server.api.bind(
            "p", "default", "n2", uid=meta.uid, resource_version=now["metadata"]["resourceVersion"]
        )


async def test_what_an_object_owns_goes_with_it(server: MemoryApi) -> None:
    job = server.put("jobs", make_job().build())
    server.put(
        "pods", {**make_pod("p").build(), "metadata": {"name": "p", "ownerReferences": [JOBS.reference(job)]}}
    )
    await server.api.delete(JOBS, job.metadata.name, namespace="default")
    assert server.get("pods", "p") is None


async def test_a_list_is_selected_by_labels_and_fields(server: MemoryApi) -> None:
    server.put("pods", make_pod("a").label("x", "1").build())
    server.put("pods", make_pod("b").label("x", "2").build())
    assert [pod.metadata.name for pod in await server.api.list(PODS, "default", label_selector="x=1")] == [
        "a"
    ]
    assert [pod.metadata.name for pod in await server.api.list(PODS, field_selector="metadata.name=b")] == [
        "b"
    ]


async def test_a_watch_shows_changes_at_once_or_after_a_pause(server: MemoryApi) -> None:
    pods: ObjectCache[Pod] = ObjectCache()
    server.watch_into("pods", pods)
    server.put("pods", make_pod("a").build())
    server.pause()
    server.remove("pods", "a")
    server.put("pods", make_pod("b").build())
    assert [pod.metadata.name for pod in pods.list()] == ["a"]
    server.resume()
    assert [pod.metadata.name for pod in pods.list()] == ["b"]


async def test_a_failure_is_raised_once_and_refused_writes_are_not_recorded(server: MemoryApi) -> None:
    server.put("pods", make_pod("a").build())
    server.fail_next("patch", "pods", 403, "Forbidden")
    with pytest.raises(Forbidden):
        await server.api.patch(PODS, "a", {}, namespace="default")
    await server.api.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}}, namespace="default")
    assert [write.body for write in server.written("patch", "pods")] == [{"metadata": {"labels": {"x": "1"}}}]
