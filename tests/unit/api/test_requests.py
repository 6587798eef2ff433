"""The cases are those of PodRequests in k8s.io/component-helpers/resource, worked out by hand."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest, pod_requests, sum_requests


def asks(
    cpu: str | None = None, *, sidecar: bool = False, limits: dict[str, str] | None = None, **more: str
) -> dict[str, Any]:
    """A container; ``example_com__fpga`` spells ``example.com/fpga``."""
    requests = {name.replace("__", "/").replace("_", "."): amount for name, amount in more.items()}
    if cpu is not None:
        requests["cpu"] = cpu
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {"name": "c", "resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def spec(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **more: Any) -> PodSpec:
    return msgspec.convert({"containers": list(containers), "initContainers": init or [], **more}, PodSpec)


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(spec(asks("1"), asks("2")), 3, id="containers add up"),
        pytest.param(spec(asks("1"), init=[asks("5")]), 5, id="an init container runs alone before"),
        pytest.param(spec(asks("3"), asks("3"), init=[asks("5")]), 6, id="the larger of both"),
        pytest.param(
            spec(asks("1"), init=[asks("2"), asks("4"), asks("3")]),
            4,
            id="init containers run one after the other",
        ),
        pytest.param(spec(asks("1"), init=[asks("2", sidecar=True)]), 3, id="a sidecar runs beside"),
        pytest.param(
            spec(asks("1"), init=[asks("2", sidecar=True), asks("5")]),
            7,
            id="an init container beside an earlier sidecar",
        ),
        pytest.param(
            spec(asks("1"), init=[asks("5"), asks("2", sidecar=True)]),
            5,
            id="a later sidecar is not beside it yet",
        ),
        pytest.param(
            spec(asks("1"), init=[asks("1", sidecar=True), asks("3"), asks("1", sidecar=True), asks("3")]),
            5,
            id="sidecars started by then count",
        ),
        pytest.param(
            spec(asks("1"), init=[asks("2", sidecar=True)], overhead={"cpu": "250m"}),
            Decimal("3.25"),
            id="overhead on top",
        ),
        pytest.param(
            spec(asks("1"), init=[asks("9")], overhead={"cpu": "1"}),
            10,
            id="overhead on top of the init containers too",
        ),
        pytest.param(spec(asks(limits={"cpu": "2"})), 2, id="a limit alone is a request"),
        pytest.param(spec(asks("1", limits={"cpu": "2"})), 1, id="a request before a limit"),
        pytest.param(spec(asks("1"), resources={"requests": {"cpu": "4"}}), 4, id="pod level before the sum"),
        pytest.param(
            spec(asks("1"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"}),
            5,
            id="pod level plus overhead",
        ),
        pytest.param(
            spec(asks("1"), init=[asks("9")], resources={"requests": {"cpu": "4"}}),
            4,
            id="pod level before init containers",
        ),
        pytest.param(
            spec(asks(), resources={"limits": {"cpu": "4"}}),
            4,
            id="a pod-level limit where no container asks",
        ),
        pytest.param(
            spec(asks("1"), asks("1"), resources={"limits": {"cpu": "4"}}),
            2,
            id="a pod-level limit is no request where they do",
        ),
        pytest.param(
            spec(asks("1"), resources={"requests": {"memory": "1Gi"}}), 1, id="pod level says nothing of cpu"
        ),
    ],
)
def test_cpu_is_summed_as_the_scheduler_sums_it(pod: PodSpec, cpu: int | Decimal) -> None:
    assert pod_requests(pod)["cpu"] == cpu


def test_resources_are_summed_each_for_itself() -> None:
    pod = spec(
        asks("1", memory="1Gi", nvidia_com__gpu="2", ephemeral__storage="0"),
        init=[asks("100m", memory="3Gi")],
    )
    assert pod_requests(pod) == {"cpu": 1, "memory": Decimal(3 * 2**30), "nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    "name", ["hugepages-2Mi", "ephemeral-storage", "example.com/fpga", "nvidia.com/mig-1g.5gb"]
)
def test_other_resources_keep_their_names(name: str) -> None:
    pod = msgspec.convert({"containers": [{"resources": {"limits": {name: 4}}}] * 2}, PodSpec)
    assert pod_requests(pod) == {name: 8}


def test_what_cannot_be_asked_for_at_pod_level_does_not_count_there() -> None:
    pod = spec(
        asks("1", nvidia_com__gpu="1"),
        resources={"requests": {"nvidia.com/gpu": "4", "hugepages-2Mi": "4Mi"}},
    )
    assert pod_requests(pod) == {"cpu": 1, "nvidia.com/gpu": 1, "hugepages-2Mi": 4 * 2**20}


def test_nothing_asked_is_nothing() -> None:
    assert pod_requests(spec({"name": "c"})) == {}
    assert pod_requests(spec(asks("0"))) == {}


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (spec(asks("lots")), "container 'c' requests cpu: 'lots' is not a quantity"),
        (spec(asks("1"), init=[asks(memory="-1")]), "container 'c' requests memory: '-1' is negative"),
        (spec(asks("1"), overhead={"cpu": "?"}), "overhead requests cpu"),
        (spec(asks("1"), resources={"requests": {"memory": "?"}}), "the pod requests memory"),
    ],
)
def test_an_invalid_quantity_is_refused_by_container_and_resource(pod: PodSpec, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message.replace("?", r"\?")):
        pod_requests(pod)


def test_several_pods_together() -> None:
    assert sum_requests([{"cpu": Decimal(1)}, {"cpu": Decimal(2), "memory": Decimal(5)}]) == {
        "cpu": 3,
        "memory": 5,
    }
