"""PodGroups of the scheduler plugins."""

from __future__ import annotations

import pytest
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.scheduler_plugins import SCHEDULER_PLUGINS

LABELS = {"scheduling.x-k8s.io/pod-group": "nginx"}


def test_a_pod_names_its_pod_group_by_a_label() -> None:
    (pod,) = pods_of(pod_builder("a", LABELS))
    assert group_of(pod) == GroupKey("default", "nginx", "PodGroup", "scheduler-plugins")


def test_our_own_label_counts_before_that_of_another_project() -> None:
    (pod,) = pods_of(pod_builder("a", LABELS | {"fluxqueue/pod-group": "ours"}))
    assert group_of(pod) == GroupKey("default", "ours")


def test_min_member_pods_start_together_and_the_others_wait_for_that() -> None:
    group = read_object(
        SCHEDULER_PLUGINS, {"minMember": 2, "scheduleTimeoutSeconds": 30, "minResources": {"cpu": "1"}}
    )
    one = gather(SCHEDULER_PLUGINS, pods_of(pod_builder("a", LABELS)), group)
    assert one is not None
    assert (one.reason, one.message) == (
        Reason.WAITING_FOR_GROUP,
        "PodGroup default/x has 1 of 2 pods: it can start when all are there",
    )
    three = gather(SCHEDULER_PLUGINS, pods_of(*(pod_builder(name, LABELS) for name in "abc")), group)
    assert three is not None
    assert (three.reason, three.size) == (Reason.NONE, 2)
    assert [pod.metadata.name for pod in three.members] == ["a", "b"]
    assert [pod.metadata.name for pod in three.excess] == ["c"]


def test_its_own_time_decides_when_it_is_late() -> None:
    group = read_object(SCHEDULER_PLUGINS, {"minMember": 2, "scheduleTimeoutSeconds": 30})
    late = gather(SCHEDULER_PLUGINS, pods_of(pod_builder("a", LABELS)), group, waited_s=31)
    assert late is not None
    assert "has had only 1 of 2 pods for more than 30 s" in late.message


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({}, "spec.minMember is missing: write a whole number from 1 to 20000", id="missing"),
        pytest.param({"minMember": 0}, "spec.minMember is 0: write", id="none"),
        pytest.param({"minMember": 10**9}, "spec.minMember is 1000000000: write", id="absurd"),
    ],
)
def test_a_nonsense_size_is_one_sentence(spec: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidGang, match=said):
        SCHEDULER_PLUGINS.read(pods_of(pod_builder("a", LABELS)), read_object(SCHEDULER_PLUGINS, spec))


def test_a_pod_that_succeeded_does_not_count_but_one_that_runs_does() -> None:
    group = read_object(SCHEDULER_PLUGINS, {"minMember": 2})
    waiting = pods_of(pod_builder("a", LABELS))
    done = pods_of(pod_builder("b", LABELS).with_("spec.schedulingGates", []).phase("Succeeded"))
    runs = pods_of(pod_builder("b", LABELS).with_("spec.schedulingGates", []).on_node("n1").phase("Running"))
    after_success = gather(SCHEDULER_PLUGINS, waiting, group, done)
    assert after_success is not None
    assert after_success.reason is Reason.WAITING_FOR_GROUP
    beside = gather(SCHEDULER_PLUGINS, waiting, group, runs)
    assert beside is not None
    assert (beside.reason, beside.size) == (Reason.NONE, 1)
