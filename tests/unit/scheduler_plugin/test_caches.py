"""A pod that is being bound counts on its node until the watch shows the outcome."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from support.scheduler_processes import released

from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches


@pytest.fixture
def caches() -> SchedulerCaches:
    return SchedulerCaches(cast("Api", None))


def pod(version: int, node: str = "n1", *, bound: str = "", phase: str = "", uid: str = "u") -> Pod:
    made = (
        released("p", node)
        .namespace("default")
        .uid(uid)
        .with_("metadata.resourceVersion", str(version))
        .phase(phase)
    )
    return msgspec.convert((made.on_node(bound) if bound else made).build(), Pod)


def on(caches: SchedulerCaches, node: str = "n1") -> list[str]:
    return [each.metadata.uid for each in caches.pods_on(node)]


def test_an_assumed_pod_counts_once_until_the_watch_shows_it_bound(caches: SchedulerCaches) -> None:
    waiting = pod(1)
    caches.pods.apply(waiting)
    assert on(caches) == []
    caches.assume(waiting, "n1")
    assert on(caches) == ["u"]
    caches.pods.apply(pod(2, bound="n1"))
    assert on(caches) == ["u"]
    assert caches.assumed_node("u") is None


def test_a_pod_that_ended_counts_no_more(caches: SchedulerCaches) -> None:
    caches.pods.apply(pod(2, bound="n1", phase="Running"))
    assert on(caches) == ["u"]
    caches.pods.apply(pod(3, bound="n1", phase="Succeeded"))
    assert on(caches) == []


def test_an_assumed_pod_that_is_deleted_counts_no_more(caches: SchedulerCaches) -> None:
    waiting = pod(1)
    caches.pods.apply(waiting)
    caches.assume(waiting, "n1")
    caches.pods.remove(waiting)
    assert on(caches) == []


def test_an_assumed_pod_that_is_to_be_elsewhere_counts_no_more(caches: SchedulerCaches) -> None:
    waiting = pod(1)
    caches.pods.apply(waiting)
    caches.assume(waiting, "n1")
    caches.pods.apply(pod(2))
    assert on(caches) == ["u"]
    caches.pods.apply(pod(3, "n2"))
    assert on(caches) == []


def test_a_late_failure_on_one_node_does_not_end_what_is_assumed_on_another(caches: SchedulerCaches) -> None:
    early, late = pod(1), pod(2, "n2")
    caches.pods.apply(early)
    caches.assume(early, "n1")
    caches.pods.apply(late)
    caches.assume(late, "n2")
    caches.forget("u", "n1")
    assert on(caches, "n2") == ["u"]
    caches.forget("u", "n2")
    assert on(caches, "n2") == []
    caches.forget("u", "n2")


def test_nothing_is_assumed_of_a_pod_that_is_bound_or_gone(caches: SchedulerCaches) -> None:
    waiting = pod(1)
    caches.assume(waiting, "n1")
    assert on(caches) == []
    caches.pods.apply(pod(2, bound="n2"))
    caches.assume(waiting, "n1")
    assert on(caches) == []
    assert on(caches, "n2") == ["u"]


def test_pods_that_are_nominated_are_known_until_they_are_bound(caches: SchedulerCaches) -> None:
    nominated = msgspec.convert(
        released("p", "n1").namespace("default").uid("u").with_("status.nominatedNodeName", "n3").build(), Pod
    )
    caches.pods.apply(nominated)
    assert [each.metadata.uid for each in caches.nominated_to("n3")] == ["u"]
    bound = msgspec.structs.replace(
        nominated,
        metadata=msgspec.structs.replace(nominated.metadata, resource_version="2"),
        spec=msgspec.structs.replace(nominated.spec, node_name="n3"),
    )
    caches.pods.apply(bound)
    assert caches.nominated_to("n3") == []
