"""ProvisioningRequests and their pod templates."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_workload

from fluxqueue.api.clusterobjects import ProvisioningRequest
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.scheduling.provisioning.node_requests import PodSetTemplate, pod_sets_of
from fluxqueue.queue.scheduling.provisioning.provisioning_requests import template_body


def test_a_template_has_the_labels_that_anti_affinity_selects() -> None:
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
        }
    }
    spec = msgspec.convert({**make_pod().build()["spec"], "affinity": affinity}, PodSpec)
    (room,) = pod_sets_of([({"job-name": "j"}, spec, 2)], {}, a_workload())
    body = template_body(room, {"name": "t"})
    assert body["metadata"] == {"name": "t"}
    assert body["template"]["metadata"]["labels"] == {"job-name": "j"}
    assert body["template"]["spec"]["affinity"] == affinity
    assert room == PodSetTemplate({"job-name": "j"}, room.spec, 2)


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([], ""),
        ([{"type": "Accepted", "status": "True"}], ""),
        ([{"type": "Failed", "status": "False", "message": "no"}], ""),
        (
            [{"type": "Failed", "status": "True", "reason": "OutOfStock", "message": "no such nodes"}],
            "no such nodes",
        ),
        ([{"type": "Failed", "status": "True", "reason": "OutOfStock"}], "OutOfStock"),
    ],
)
def test_a_provisioning_request_failed_if_its_condition_says_so(
    conditions: list[dict[str, str]], why: str
) -> None:
    assert msgspec.convert({"status": {"conditions": conditions}}, ProvisioningRequest).failed == why
