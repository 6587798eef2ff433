"""Which pods are bound together, decided from the changes of pods alone."""

from __future__ import annotations

import msgspec
import pytest
from support.scheduler_processes import released

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.scheduler_plugin.gangs import Gang, GangKey, PendingGangs

FOURS = GangKey("default", "7", "")


class Cluster:
    """A cache of pods and the gangs that follow it; the clock is a number."""

    def __init__(self) -> None:
        self.now = 100.0
        self.book = PendingGangs(lambda: self.now)
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.looked_at: list[GangKey] = []
        self.pods.add_handler(lambda change: self.looked_at.extend(self.book.apply(change)))
        self._version = 0

    def put(
        self,
        index: int,
        node: str = "n1",
        *,
        gang: int = 4,
        allocation: str = "7",
        bound: bool = False,
        **fields: str,
    ) -> Pod:
        self._version += 1
        pod = (
            released(f"p{index}", node, allocation=allocation, gang=gang)
            .namespace("default")
            .uid(f"u{index}")
            .index(index)
        )
        pod = pod.with_("metadata.resourceVersion", str(self._version))
        for path, value in fields.items():
            pod = pod.with_(path.replace("__", "."), value)
        made = msgspec.convert((pod.on_node(node) if bound else pod).build(), Pod)
        self.looked_at.clear()
        self.pods.apply(made)
        return made

    def remove(self, index: int) -> None:
        self.looked_at.clear()
        self.pods.remove(self.pods.get("default", f"p{index}") or Pod())

    def gang(self, key: GangKey = FOURS, bound: frozenset[str] = frozenset()) -> Gang:
        gang = self.book.gang(key, bound)
        assert gang is not None
        return gang


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def names(gang: Gang) -> list[str]:
    return [member.pod.metadata.name for member in gang.members]


def test_a_gang_is_complete_when_it_has_as_many_pods_as_its_size(cluster: Cluster) -> None:
    for index in (3, 0, 2):
        cluster.put(index)
        assert cluster.looked_at == [FOURS]
        assert not cluster.gang().complete
    cluster.put(1)
    assert cluster.gang().complete
    assert not cluster.gang().apart
    assert names(cluster.gang()) == ["p0", "p1", "p2", "p3"]


def test_ranks_are_numbers_and_not_text(cluster: Cluster) -> None:
    for index in (10, 9):
        cluster.put(index, gang=2)
    assert names(cluster.gang()) == ["p9", "p10"]


def test_a_pod_without_a_gang_is_checked_alone(cluster: Cluster) -> None:
    cluster.put(0, gang=0)
    cluster.put(1, gang=0)
    assert cluster.looked_at == [GangKey("default", "", "u1")]
    assert cluster.gang(GangKey("default", "", "u1")).apart
    assert names(cluster.gang(GangKey("default", "", "u1"))) == ["p1"]


def test_pods_that_are_deleted_gated_or_withdrawn_are_missing_from_their_gang(cluster: Cluster) -> None:
    for index in range(4):
        cluster.put(index)
    cluster.put(1, metadata__deletionTimestamp="2026-01-01T00:00:00Z")
    assert cluster.looked_at == [FOURS]
    assert not cluster.gang().complete
    cluster.remove(2)
    assert names(cluster.gang()) in (["p0", "p3"], ["p3", "p0"])
    cluster.put(3, status__phase="Failed")
    cluster.remove(0)
    assert cluster.book.gang(FOURS) is None
    assert not cluster.book.keys


def test_a_gang_has_started_when_one_of_its_pods_is_bound(cluster: Cluster) -> None:
    cluster.put(0)
    cluster.put(1, bound=True)
    assert cluster.looked_at == [FOURS]
    assert cluster.gang().apart
    assert names(cluster.gang()) == ["p0"]


def test_a_pod_bound_by_us_counts_before_the_watch_shows_it(cluster: Cluster) -> None:
    cluster.put(0)
    cluster.put(1)
    assert cluster.gang(bound=frozenset({"u1"})).started
    assert not cluster.gang(bound=frozenset({"of another gang"})).started


def test_a_gang_that_ran_and_is_gone_does_not_hold_a_pod_that_replaces_one(cluster: Cluster) -> None:
    cluster.put(0, bound=True)
    cluster.remove(0)
    cluster.put(1)
    assert cluster.gang().apart


def test_gangs_of_other_namespaces_and_allocations_are_others(cluster: Cluster) -> None:
    cluster.put(0, bound=True)
    cluster.put(1, allocation="8")
    cluster.put(2, metadata__namespace="other")
    assert not cluster.gang(GangKey("default", "8", "")).apart
    assert not cluster.gang(GangKey("other", "7", "")).apart


def test_a_pod_that_gets_another_allocation_leaves_its_gang_and_joins_the_new_one(cluster: Cluster) -> None:
    cluster.put(0)
    cluster.now = 105.0
    cluster.put(0, allocation="8")
    assert cluster.looked_at == [FOURS, GangKey("default", "8", "")]
    assert cluster.book.gang(FOURS) is None
    assert cluster.gang(GangKey("default", "8", "")).since == 105.0


def test_waiting_counts_from_the_first_pod_and_not_from_the_last_change(cluster: Cluster) -> None:
    cluster.put(0)
    cluster.now = 103.0
    cluster.put(1)
    cluster.put(0, metadata__labels__changed="yes")
    assert cluster.gang().since == 100.0
    assert {member.seen_at for member in cluster.gang().members} == {100.0, 103.0}


def test_the_size_follows_the_annotations_of_the_pods_that_are_there(cluster: Cluster) -> None:
    cluster.put(0, gang=4)
    cluster.put(1, gang=2)
    assert cluster.gang().size == 4
    cluster.put(0, gang=2)
    assert cluster.gang().size == 2
    assert cluster.gang().complete


def test_pods_of_other_schedulers_are_not_seen(cluster: Cluster) -> None:
    cluster.put(0, spec__schedulerName="default-scheduler")
    assert cluster.looked_at == []
    assert len(cluster.book) == 0


def test_an_unreadable_assignment_is_kept_apart_with_its_sentence(cluster: Cluster) -> None:
    cluster.put(0, "n[1-")
    assert len(cluster.book) == 0
    _, sentence = cluster.book.invalid["u0"]
    assert "fluxqueue/fluxion-nodes" in sentence
    cluster.put(0, "n1")
    assert not cluster.book.invalid
    assert len(cluster.book) == 1
    cluster.put(0, "n[1-")
    cluster.remove(0)
    assert not cluster.book.invalid
