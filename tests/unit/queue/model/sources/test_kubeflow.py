"""Jobs of the Training Operator."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.gang_sources import GangSource, InvalidGang
from fluxqueue.queue.model.sources.kubeflow import KUBEFLOW_JOBS

SOURCES = {source.kind: source for source in KUBEFLOW_JOBS}
FIELDS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
PYTORCH = SOURCES["PyTorchJob"]


def replica(kind: str, role: str, index: int) -> PodBuilder:
    labels = {
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    return pod_builder(f"mnist-{role}-{index}", labels).owned_by(kind, "mnist", api_version="kubeflow.org/v1")


def training(source: GangSource, replicas: dict[str, Any], **spec: Any) -> Any:
    specs = {role: {"replicas": count} if count is not None else {} for role, count in replicas.items()}
    return read_object(source, {FIELDS[source.kind]: specs, **spec}, name="mnist")


@pytest.mark.parametrize("kind", FIELDS)
def test_all_replicas_of_all_types_are_one_gang(kind: str) -> None:
    source, owner = SOURCES[kind], training(SOURCES[kind], {"Master": None, "Worker": 2})
    pods = pods_of(replica(kind, "master", 0), replica(kind, "worker", 0), replica(kind, "worker", 1))
    assert {group_of(pod) for pod in pods} == {GroupKey("default", "mnist", kind, kind.lower())}
    whole, part = gather(source, pods, owner), gather(source, pods[1:], owner)
    assert whole is not None
    assert part is not None
    assert (whole.reason, whole.size, part.reason) == (Reason.NONE, 3, Reason.WAITING_FOR_GROUP)


def test_an_elastic_job_starts_with_its_smallest_number_of_workers() -> None:
    owner = training(PYTORCH, {"Worker": 4}, elasticPolicy={"minReplicas": 2, "maxReplicas": 8})
    found = gather(PYTORCH, pods_of(*(replica("PyTorchJob", "worker", number) for number in range(4))), owner)
    assert found is not None
    assert (found.size, len(found.excess)) == (2, 2)


def elastic(**run_policy: Any) -> dict[str, Any]:
    return {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}, "runPolicy": run_policy}


@pytest.mark.parametrize(
    ("policy", "spec", "leasts"),
    [
        (None, elastic(), {"worker": 2}),
        ("OnFailure", elastic(backoffLimit=3), {"worker": 2}),
        ("Always", elastic(), {"worker": 2}),
        ("Never", elastic(), {}),
        ("ExitCode", elastic(), {}),
        (None, elastic(backoffLimit=0), {}),
        (None, {}, {}),
        (None, {"elasticPolicy": {"maxReplicas": 4}}, {"worker": 0}),
    ],
)
def test_an_elastic_job_goes_on_with_fewer_workers_if_ended_ones_come_again(
    policy: str | None, spec: dict[str, Any], leasts: dict[str, int]
) -> None:
    worker = {"replicas": 4, **({"restartPolicy": policy} if policy else {})}
    owner = read_object(PYTORCH, {"pytorchReplicaSpecs": {"Worker": worker}, **spec}, name="mnist")
    assert PYTORCH.leasts_of(owner) == leasts


def test_the_first_worker_stays_where_the_others_meet() -> None:
    pods = pods_of(
        *(replica("PyTorchJob", role, at) for role, at in (("worker", 0), ("worker", 1), ("master", 0)))
    )
    assert [PYTORCH.stays(pod) for pod in pods] == [True, False, False]


def test_a_stated_minimum_takes_from_the_workers() -> None:
    owner = training(PYTORCH, {"Master": 1, "Worker": 4}, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
    assert [(role.name, role.pods) for role in PYTORCH.read((), owner).roles] == [
        ("master", 1),
        ("worker", 1),
    ]


def test_the_job_of_another_version_or_group_is_not_taken_for_one() -> None:
    (other,) = pods_of(pod_builder("a").owned_by("PyTorchJob", api_version="example.org/v1"))
    assert group_of(other) is None


@pytest.mark.parametrize(
    ("replicas", "spec", "said"),
    [
        pytest.param({"Worker": -3}, {}, r"spec.pytorchReplicaSpecs.Worker.replicas is -3", id="replicas"),
        pytest.param(
            {"Worker": 2},
            {"elasticPolicy": {"minReplicas": 0}},
            r"spec.elasticPolicy.minReplicas is 0",
            id="elastic",
        ),
        pytest.param({"Master": 19_999, "Worker": 19_999}, {}, "asks for 39998 pods", id="absurd"),
    ],
)
def test_nonsense_is_one_sentence(replicas: dict[str, int], spec: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidGang, match=said):
        PYTORCH.read((), training(PYTORCH, replicas, **spec))
