from typing import Any

import pytest
from support.builders import make_pod
from support.memory_api import MemoryApi

from fluxqueue.cli.uninstall.installation import Installation, SeveralInstallations, find_installation
from fluxqueue.cli.uninstall.removal import ADMISSION, OTHERS, POLICIES, PROGRAMS, QueueStillRuns, Removal

SPACE = "fluxqueue-system"
OURS = Installation(SPACE, "batch", "batch-fluxqueue")


def an_object(name: str, *, release: str = "batch", component: str = "queue", **meta: Any) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "fluxqueue",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
        "helm.sh/chart": "fluxqueue-0.1.0",
    }
    metadata = {"name": name, "namespace": SPACE, "labels": labels, **meta}
    return {"metadata": {key: value for key, value in metadata.items() if value is not None}}


async def test_only_objects_of_this_release_go_and_what_helm_keeps_stays() -> None:
    cluster = MemoryApi()
    cluster.put(
        "secrets", an_object("batch-fluxqueue-postgres", annotations={"helm.sh/resource-policy": "keep"})
    )
    cluster.put("persistentvolumeclaims", an_object("data-batch-fluxqueue-postgres-0"))
    dumps = an_object(
        "batch-fluxqueue-postgres-backup", component="backup", annotations={"helm.sh/resource-policy": "keep"}
    )
    cluster.put("persistentvolumeclaims", dumps)
    for plural in (
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "deployments",
        "configmaps",
        "serviceaccounts",
    ):
        cluster.put(
            plural,
            an_object("ours", namespace=None if "admission" in plural or "webhook" in plural else SPACE),
        )
        cluster.put(plural, an_object("theirs", release="other"))
    cluster.put("services", an_object("elsewhere", namespace="elsewhere"))
    removal = Removal(cluster.api, OURS)
    removed = [
        name for stage in (ADMISSION, POLICIES, PROGRAMS, OTHERS) for name in await removal.remove(stage)
    ]
    assert len(removed) == 5
    assert all(name.endswith("ours") for name in removed)
    assert cluster.get("services", "elsewhere", "elsewhere") is not None
    assert await removal.data() == [
        "PersistentVolumeClaim fluxqueue-system/data-batch-fluxqueue-postgres-0",
        "Secret fluxqueue-system/batch-fluxqueue-postgres",
    ]
    assert await removal.remove(OTHERS) == []
    await removal.remove_data()
    assert await removal.data() == []
    assert await removal.dumps() == ["PersistentVolumeClaim fluxqueue-system/batch-fluxqueue-postgres-backup"]


async def test_what_the_programs_created_goes_by_its_name() -> None:
    cluster = MemoryApi()
    cluster.put("leases", {"metadata": {"name": "batch-fluxqueue-queue", "namespace": SPACE}})
    for program in ("webhook", "queue", "scheduler", "dashboard"):
        cluster.put("secrets", {"metadata": {"name": f"batch-fluxqueue-{program}-tls", "namespace": SPACE}})
    cluster.put("secrets", {"metadata": {"name": "a-secret", "namespace": SPACE}})
    removal = Removal(cluster.api, OURS)
    assert len(await removal.remove_created()) == 5
    assert cluster.get("secrets", "a-secret", SPACE) is not None
    assert await removal.remove_created() == []


async def test_fluxjobs_of_kept_work_stay_and_requests_for_nodes_go() -> None:
    cluster = MemoryApi()
    for uid in ("kept", "other"):
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": uid, "uid": uid}
        cluster.put(
            "fluxjobs", {"metadata": {"name": uid}, "spec": {"objectRef": ref, "pods": 1, "jobspec": "{}"}}
        )
    cluster.put("podtemplates", {"metadata": {"name": "ours", "labels": {"fluxqueue/provisions": "other"}}})
    cluster.put("podtemplates", {"metadata": {"name": "theirs"}})
    for namespace, name in ((SPACE, "room-0"), ("default", "copied")):
        cluster.put("pods", make_pod(name).namespace(namespace).label("fluxqueue/room", "room").build())
    assert await Removal(cluster.api, OURS).remove_fluxjobs({"kept"}) == 1
    assert cluster.get("fluxjobs", "kept") is not None
    assert cluster.get("podtemplates", "ours") is None
    assert cluster.get("podtemplates", "theirs") is not None
    assert cluster.get("pods", "room-0", SPACE) is None
    assert cluster.get("pods", "copied") is not None, "room pods are in the namespace of the queue only"


async def test_a_queue_that_does_not_end_is_named_and_one_that_released_its_lease_is_not_waited_for() -> None:
    cluster = MemoryApi()
    labels = an_object("q-0")["metadata"]["labels"]
    pod = make_pod("q-0").namespace(SPACE).build()
    pod["metadata"]["labels"] = labels
    cluster.put("pods", pod)
    removal = Removal(cluster.api, OURS)
    with pytest.raises(QueueStillRuns, match="Pod fluxqueue-system/q-0 did not end within 0 s"):
        await removal.stop_programs(0)
    cluster.remove("pods", "q-0", SPACE)
    lease = {"metadata": {"name": "batch-fluxqueue-queue", "namespace": SPACE}}
    cluster.put("leases", {**lease, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 8}})
    with pytest.raises(QueueStillRuns, match="is still renewed by me"):
        await removal.stop_programs(0)
    cluster.put("leases", {**lease, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    await removal.stop_programs(0)


async def test_the_crd_of_another_operator_is_not_ours() -> None:
    cluster = MemoryApi()
    for name in ("fluxjobs.jobs.converged-computing.org", "miniclusters.flux-framework.org"):
        cluster.put("customresourcedefinitions", {"metadata": {"name": name}})
    removal = Removal(cluster.api, OURS)
    assert await removal.definitions() == ["fluxjobs.jobs.converged-computing.org"]
    cluster.put(
        "customresourcedefinitions",
        {
            "metadata": {
                "name": "miniclusters.flux-framework.org",
                "labels": {"fluxqueue/operator": "fluxqueue"},
            }
        },
    )
    assert len(await removal.remove_definitions()) == 2


@pytest.mark.parametrize("plural", ["deployments", "serviceaccounts"])
async def test_an_installation_is_found_by_what_is_left_of_it(plural: str) -> None:
    cluster = MemoryApi()
    cluster.put(plural, an_object("batch-fluxqueue-queue"))
    assert await find_installation(cluster.api) == OURS


async def test_an_installation_without_helm_is_found_by_its_webhook_configuration() -> None:
    cluster = MemoryApi()
    body = an_object("batch-fluxqueue-webhook", component="webhook")
    del body["metadata"]["namespace"]
    cluster.put(
        "mutatingwebhookconfigurations",
        {**body, "webhooks": [{"name": "mutate.fluxqueue.jobs.converged-computing.org", "clientConfig": {}}]},
    )
    assert await find_installation(cluster.api) == OURS
    assert await find_installation(cluster.api, "hpc") == Installation("hpc", "batch", "batch-fluxqueue")


async def test_where_nothing_is_left_the_names_follow_from_those_of_the_release() -> None:
    cluster = MemoryApi()
    assert await find_installation(cluster.api) == Installation(SPACE, "fluxqueue", "fluxqueue", exists=False)
    assert (await find_installation(cluster.api, "hpc", "batch")).prefix == "batch-fluxqueue"


async def test_of_several_installations_one_is_chosen() -> None:
    cluster = MemoryApi()
    cluster.put("deployments", an_object("batch-fluxqueue-queue"))
    cluster.put("deployments", an_object("other-fluxqueue-queue", release="other"))
    with pytest.raises(SeveralInstallations, match="choose one with"):
        await find_installation(cluster.api)
    assert await find_installation(cluster.api, release="batch") == OURS
