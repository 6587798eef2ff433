"""Volcano's PodGroups."""

from __future__ import annotations

import pytest
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.volcano import VOLCANO


@pytest.mark.parametrize("key", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_a_pod_names_its_pod_group_by_an_annotation(key: str) -> None:
    (pod,) = pods_of(pod_builder("a", annotations={key: "podgroup-1"}))
    assert group_of(pod) == GroupKey("default", "podgroup-1", "PodGroup", "volcano")


def test_an_annotation_that_no_object_can_be_called_names_no_group() -> None:
    (pod,) = pods_of(pod_builder("a", annotations={"scheduling.k8s.io/group-name": "x" * 254}))
    assert group_of(pod) is None


def test_min_member_pods_start_together() -> None:
    group = read_object(VOLCANO, {"minMember": 3, "minTaskMember": {"driver": 1}, "queue": "default"})
    pods = pods_of(*(pod_builder(name, annotations={"scheduling.k8s.io/group-name": "x"}) for name in "abc"))
    whole, part = gather(VOLCANO, pods, group), gather(VOLCANO, pods[:2], group)
    assert whole is not None
    assert part is not None
    assert (whole.reason, whole.size, part.reason) == (Reason.NONE, 3, Reason.WAITING_FOR_GROUP)


def test_a_group_without_a_minimum_is_one_pod() -> None:
    found = gather(VOLCANO, pods_of(pod_builder("a")), read_object(VOLCANO, {"minMember": 0}))
    assert found is not None
    assert (found.reason, found.size) == (Reason.NONE, 1)
