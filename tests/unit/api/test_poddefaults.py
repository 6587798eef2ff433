"""What a pod of a template will ask for: the order is that of the API server (defaulting, LimitRanger,
RuntimeClass).
"""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fluxqueue.api.poddefaults import LimitRange, RuntimeClass, with_defaults
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import pod_requests


def template(*resources: dict[str, Any], **more: Any) -> PodSpec:
    return msgspec.convert(
        {"containers": [{"name": "c", "resources": each} for each in resources], **more}, PodSpec
    )


def limit_range(kind: str = "Container", **request: str) -> LimitRange:
    return msgspec.convert({"spec": {"limits": [{"type": kind, "defaultRequest": request}]}}, LimitRange)


HALF = limit_range(cpu="500m", memory="1Gi")


@pytest.mark.parametrize(
    ("message", "cpu"),
    [
        pytest.param({}, "0.5", id="nothing message"),
        pytest.param({"requests": {"cpu": "2"}}, "2", id="a request stays"),
        pytest.param({"limits": {"cpu": "2"}}, "2", id="a limit is a request before the LimitRange comes"),
        pytest.param({"requests": {"memory": "2Gi"}}, "0.5", id="another resource"),
    ],
)
def test_a_limit_range_fills_only_what_a_container_does_not_set(message: dict[str, Any], cpu: str) -> None:
    assert pod_requests(with_defaults(template(message), [HALF]))["cpu"] == Decimal(cpu)


def test_every_container_is_filled_init_containers_too() -> None:
    spec = template({}, {}, initContainers=[{"name": "i"}, {"name": "s", "restartPolicy": "Always"}])
    assert pod_requests(with_defaults(spec, [HALF])) == {"cpu": Decimal("1.5"), "memory": 3 * 2**30}


def test_the_first_range_that_says_something_counts_and_ranges_of_pods_say_nothing() -> None:
    ranges = [limit_range("Pod", cpu="9"), limit_range(cpu="1"), HALF]
    assert pod_requests(with_defaults(template({}), ranges)) == {"cpu": 1, "memory": 2**30}


def test_pod_level_requests_are_decided_before_containers_are_filled() -> None:
    spec = template({}, resources={"limits": {"cpu": "4"}})
    assert pod_requests(with_defaults(spec, [HALF])) == {"cpu": 4, "memory": 2**30}


def test_a_runtime_class_adds_overhead_nodes_and_tolerations() -> None:
    runtime = msgspec.convert(
        {
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {
                "nodeSelector": {"sandbox": "yes"},
                "tolerations": [{"key": "sandbox", "operator": "Exists"}],
            },
        },
        RuntimeClass,
    )
    spec = with_defaults(template({"requests": {"cpu": "1"}}, nodeSelector={"disk": "ssd"}), [], runtime)
    assert pod_requests(spec) == {"cpu": Decimal("1.25")}
    assert spec.node_selector == {"disk": "ssd", "sandbox": "yes"}
    assert [toleration.key for toleration in spec.tolerations or ()] == ["sandbox"]


def test_nothing_to_add_is_the_same_spec() -> None:
    spec = template({})
    assert with_defaults(spec) is spec
    assert with_defaults(spec, [limit_range("Pod", cpu="1")]) is spec
    assert with_defaults(spec, [], RuntimeClass()) == spec
