"""RayClusters of KubeRay."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import PodBuilder, make_job
from support.gang_builders import gather, pod_builder, pods_of, read_object
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of, group_of_job
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS


def node(name: str, node_type: str, group: str) -> PodBuilder:
    labels = {"ray.io/cluster": "ray", "ray.io/node-type": node_type, "ray.io/group": group}
    return pod_builder(name, labels).owned_by("RayCluster", "ray", api_version="ray.io/v1")


HEAD = node("ray-head", "head", "headgroup")


def worker(number: int, group: str = "small") -> PodBuilder:
    return node(f"ray-{group}-{number}", "worker", group)


def cluster(*groups: dict[str, Any], **spec: Any) -> Any:
    return read_object(
        RAY_CLUSTERS, {"headGroupSpec": {}, "workerGroupSpecs": list(groups), **spec}, name="ray"
    )


def roles(owner: Any) -> dict[str, int]:
    return {role.name: role.pods for role in RAY_CLUSTERS.read((), owner).roles}


def test_the_head_and_the_workers_of_all_groups_are_one_gang() -> None:
    owner = cluster(
        {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 5},
        {"groupName": "gpu", "minReplicas": 1},
    )
    pods = pods_of(HEAD, worker(0), worker(1), worker(0, "gpu"))
    assert {group_of(pod) for pod in pods} == {GroupKey("default", "ray", "RayCluster", "raycluster")}
    whole, headless = gather(RAY_CLUSTERS, pods, owner), gather(RAY_CLUSTERS, pods[1:], owner)
    assert whole is not None
    assert headless is not None
    assert (whole.reason, whole.size, headless.reason) == (Reason.NONE, 4, Reason.WAITING_FOR_GROUP)


def test_with_the_autoscaler_only_the_smallest_number_starts_with_the_head() -> None:
    owner = cluster(
        {"groupName": "small", "replicas": 3, "minReplicas": 1, "maxReplicas": 9},
        enableInTreeAutoscaling=True,
    )
    found = gather(RAY_CLUSTERS, pods_of(HEAD, *(worker(number) for number in range(3))), owner)
    assert found is not None
    assert (found.size, len(found.excess)) == (2, 2)


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        pytest.param({"replicas": 2, "numOfHosts": 4}, 8, id="several hosts a replica"),
        pytest.param({"replicas": 7, "maxReplicas": 3}, 3, id="more than the most"),
        pytest.param({"replicas": 1, "minReplicas": 2, "maxReplicas": 4}, 2, id="fewer than the least"),
        pytest.param({"replicas": 2, "suspend": True}, None, id="suspended"),
        pytest.param({}, None, id="none"),
    ],
)
def test_a_worker_group_starts_with(group: dict[str, Any], pods: int | None) -> None:
    assert roles(cluster({"groupName": "g", **group})) == {"head": 1, **({"worker/g": pods} if pods else {})}


def test_nonsense_is_one_sentence() -> None:
    with pytest.raises(InvalidGang, match=r"spec.workerGroupSpecs\[0\].replicas is -1"):
        roles(cluster({"groupName": "g", "replicas": -1}))
    with pytest.raises(InvalidGang, match="asks for 400000001 pods"):
        roles(cluster({"groupName": "g", "replicas": 20_000, "numOfHosts": 20_000}))


def test_the_job_that_submits_a_rayjob_is_an_ordinary_job() -> None:
    submitter = a_job(make_job("rayjob").owned_by("RayJob", "rayjob", api_version="ray.io/v1"))
    assert group_of_job(submitter) is None


def test_a_worker_group_goes_on_with_its_smallest_number() -> None:
    owner = cluster(
        {"groupName": "small", "replicas": 4, "minReplicas": 2},
        {"groupName": "any", "replicas": 4, "minReplicas": -1},
        {"groupName": "slices", "replicas": 4, "minReplicas": 2, "numOfHosts": 2},
    )
    assert RAY_CLUSTERS.leasts_of(owner) == {"worker/small": 2, "worker/any": 0}
