"""SparkApplications: the driver, and room for its executors."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.gathering import GangPods, later_pods_of_source
from fluxqueue.queue.model.sources.spark import SPARK_APPLICATIONS


def pod(name: str, role: str) -> PodBuilder:
    return pod_builder(name, {"sparkoperator.k8s.io/app-name": "pi", "spark-role": role})


def application(**spec: Any) -> Any:
    stated = {"type": "Scala", "executor": {"instances": 2, "cores": 1, "memory": "512m"}, **spec}
    return read_object(SPARK_APPLICATIONS, stated, name="pi")


def executor_requests(owner: Any) -> dict[str, Any]:
    (role,) = [role for role in SPARK_APPLICATIONS.read((), owner).roles if role.later is not None]
    assert role.later is not None
    return dict(role.later.spec.containers[0].resources.requests or {})


def test_driver_and_executors_are_one_gang() -> None:
    keys = {group_of(each) for each in pods_of(pod("pi-driver", "driver"), pod("pi-exec-1", "executor"))}
    assert keys == {GroupKey("default", "pi", "SparkApplication", "sparkapplication")}


def test_the_driver_starts_with_room_for_its_executors() -> None:
    owner = application()
    found = gather(SPARK_APPLICATIONS, pods_of(pod("pi-driver", "driver")), owner)
    assert found is not None
    assert (found.reason, found.size, [each.pods for each in found.later_pods]) == (Reason.NONE, 3, [2])
    driver = pod("pi-driver", "driver").with_("spec.schedulingGates", []).on_node("n1").phase("Running")
    pods = pods_of(driver, pod("pi-exec-1", "executor"))
    assert [each.pods for each in later_pods_of_source(GangPods(SPARK_APPLICATIONS, "", pods), owner)] == [1]


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        pytest.param({}, "1", "896Mi", id="at least 384 MiB on top"),
        pytest.param({"executor": {"cores": 4, "memory": "10g"}}, "4", "11264Mi", id="a tenth on top"),
        pytest.param({"type": "Python", "executor": {"memory": "10g"}}, "1", "14336Mi", id="more for Python"),
        pytest.param(
            {"executor": {"coreRequest": "500m", "memory": "1g", "memoryOverhead": "256m"}},
            "500m",
            "1280Mi",
            id="as stated",
        ),
        pytest.param(
            {"memoryOverheadFactor": "0.5", "executor": {"memory": "4g"}},
            "1",
            "6144Mi",
            id="with its own factor",
        ),
    ],
)
def test_an_executor_is_as_large_as_spark_makes_it(spec: dict[str, Any], cpu: str, memory: str) -> None:
    assert executor_requests(application(**spec)) == {"cpu": cpu, "memory": memory}


def test_an_executor_asks_for_its_gpus() -> None:
    owner = application(executor={"gpu": {"name": "nvidia.com/gpu", "quantity": 2}})
    assert executor_requests(owner)["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("allocation", "pods"),
    [({"enabled": True, "minExecutors": 3}, 4), ({"enabled": True}, 1), ({"enabled": False}, 3)],
)
def test_with_dynamic_allocation_the_stated_minimum_starts_with_the_driver(
    allocation: dict[str, Any], pods: int
) -> None:
    assert SPARK_APPLICATIONS.read((), application(dynamicAllocation=allocation)).pods == pods


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"executor": {"instances": -1}}, r"spec.executor.instances is -1", id="number"),
        pytest.param({"executor": {"memory": "much"}}, r"spec.executor.memory is 'much'", id="memory"),
        pytest.param({"memoryOverheadFactor": "x"}, r"spec.memoryOverheadFactor is 'x'", id="factor"),
    ],
)
def test_nonsense_is_one_sentence(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidGang, match=said):
        SPARK_APPLICATIONS.read((), application(**spec))


def test_a_suspended_application_keeps_no_room() -> None:
    assert not SPARK_APPLICATIONS.read((), application(suspend=True)).active
