"""Which slots of a group are for a pod."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import Json, make_pod
from support.device_objects import CLASS, a_claim, a_class, a_template, request, resource_claims
from support.queue_builders import a_pod, around

from fluxqueue.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.cluster.devices import ClusterDevices
from fluxqueue.queue.cluster.slot_labels import label_for_pod
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of

ONE = Decimal(1)
DEVICES = f"devices/{CLASS}/any"


@pytest.fixture
def cluster() -> ClusterContext:
    devices = ClusterDevices(counted=True)
    devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    for name, count in (("one", 1), ("two", 2), ("three", 3)):
        devices.templates.apply(
            msgspec.convert(a_template(name, request(count), namespace="default"), ResourceClaimTemplate)
        )
    devices.claims.apply(msgspec.convert(a_claim("shared", request(2), namespace="default"), ResourceClaim))
    devices.claims.apply(
        msgspec.convert(a_claim("own", request(2), namespace="default", has=[("n1", "gpu-0")]), ResourceClaim)
    )
    return around(devices=devices)


def pod(*claims: Json, cpu: str = "1") -> PodSpec:
    return a_pod(make_pod("p").cpu(cpu).with_("spec.resourceClaims", [*claims])).spec


def group(*devices: int, once: Mapping[str, int] | None = None) -> str:
    """Return a jobspec of pods of one cpu with so many devices each."""
    pods = [SizedPods({"cpu": ONE, **({DEVICES: Decimal(count)} if count else {})}, 1) for count in devices]
    return jobspec_of("default/w", pods, duration_s=60, placement=PlacementRules(once=once or {}))


def label(jobspec: str, spec: PodSpec, cluster: ClusterContext) -> str | None:
    return label_for_pod(jobspec, "default", spec, cluster)


def test_devices_tell_apart_slots_that_are_alike_in_all_else(cluster: ClusterContext) -> None:
    jobspec = group(0, 1, 2)
    claims: list[list[Any]] = [[], resource_claims("one"), resource_claims("two"), resource_claims("three")]
    found = [label(jobspec, pod(*each), cluster) for each in claims]
    assert len({*found[:3]}) == 3
    assert found[3] is None
    assert label(jobspec, pod(cpu="2"), cluster) is None


def test_a_claim_that_has_its_devices_is_no_reason_for_another_slot(cluster: ClusterContext) -> None:
    assert label(group(2), pod(*resource_claims(claim="own")), cluster) == "pod"


def test_what_the_pods_of_a_group_share_is_in_no_slot(cluster: ClusterContext) -> None:
    spec = pod(*resource_claims(claim="shared"), {"name": "more", "resourceClaimTemplateName": "one"})
    assert label(group(1, once={DEVICES: 2}), spec, cluster) == "pod"


def test_a_pod_whose_claims_cannot_be_read_gets_no_slot_with_devices(cluster: ClusterContext) -> None:
    assert label(group(1), pod(*resource_claims("gone")), cluster) is None
    assert label(group(0), pod(*resource_claims("gone")), cluster) == "pod"
