from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from support.builders import make_pod
from support.claim_cluster import ClaimCluster
from support.controller_bench import until
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.storage import CSINode, PersistentVolume, StorageClass
from fluxqueue.queue.intake.claim_watch import ClaimWatch
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.groups import GroupKey


class WatchedCluster(ClaimCluster):
    """A cluster, and what a watch of its claims enqueued."""

    def __init__(self) -> None:
        super().__init__()
        self.enqueued: list[str | GroupKey] = []
        self.watch = ClaimWatch(self.caches, self.ledger, self.enqueued.append)
        subscribe(self.caches, self.ledger, self.watch)


@pytest.fixture
def cluster() -> WatchedCluster:
    return WatchedCluster()


def test_users_of_a_claim_are_enqueued_when_it_is_created_bound_or_deleted(cluster: WatchedCluster) -> None:
    cluster.job("j")
    cluster.pod("p", make_pod("p"))
    for version, spec in enumerate(({}, {"volumeName": "pv"}), start=1):
        cluster.enqueued.clear()
        cluster.claim(version, **spec)
        assert cluster.enqueued == ["j", "p"]
    cluster.enqueued.clear()
    cluster.claim(3, volumeName="pv")
    assert cluster.enqueued == [], "nothing of it changed that placement depends on"
    cluster.caches.storage.claims.replace([])
    assert cluster.enqueued == ["j", "p"]


def test_volumes_classes_and_driver_limits_concern_the_claims_that_depend_on_them(
    cluster: WatchedCluster,
) -> None:
    cluster.job("j")
    cluster.claim()
    storage = cluster.caches.storage
    free = {
        "metadata": {"name": "pv", "uid": "pv"},
        "spec": {"storageClassName": "fast"},
        "status": {"phase": "Available"},
    }
    other = {"metadata": {"name": "slow", "uid": "slow"}, "spec": {"storageClassName": "slow"}}
    drivers = {"drivers": [{"name": "example.com", "allocatable": {"count": 3}}]}
    steps: list[tuple[Callable[[], None], list[str]]] = [
        (lambda: storage.volumes.apply(msgspec.convert(free, PersistentVolume)), ["j"]),
        (lambda: storage.volumes.apply(msgspec.convert(other, PersistentVolume)), []),
        (
            lambda: storage.classes.apply(
                msgspec.convert({"metadata": {"name": "fast", "uid": "c"}}, StorageClass)
            ),
            ["j"],
        ),
        (
            lambda: storage.csi_nodes.apply(
                msgspec.convert({"metadata": {"name": "n", "uid": "n"}, "spec": drivers}, CSINode)
            ),
            ["j"],
        ),
        (
            lambda: storage.csi_nodes.apply(
                msgspec.convert({"metadata": {"name": "m", "uid": "m"}, "spec": drivers}, CSINode)
            ),
            [],
        ),
    ]
    for change, enqueued in steps:
        cluster.enqueued.clear()
        change()
        assert cluster.enqueued == enqueued


def test_a_new_class_enqueues_all_work_that_waits_for_volumes(cluster: WatchedCluster) -> None:
    cluster.rows.rows = [
        a_workload("waits", uid="waits", reason=Reason.WAITING_FOR_VOLUMES),
        a_workload("other", uid="other"),
    ]
    cluster.caches.storage.classes.apply(
        msgspec.convert({"metadata": {"name": "any", "uid": "c"}}, StorageClass)
    )
    assert cluster.enqueued == ["waits"]


def test_users_of_a_claim_for_one_pod_are_enqueued_when_its_pod_ends(cluster: WatchedCluster) -> None:
    cluster.claim(1, "ReadWriteOncePod", volumeName="pv")
    cluster.job("j")
    cluster.pod("p", make_pod("user").on_node("n1"))
    cluster.enqueued.clear()
    cluster.caches.pods.replace([])
    assert "j" in cluster.enqueued


def test_users_of_a_claim_for_many_pods_do_not_wait_for_a_pod(cluster: WatchedCluster) -> None:
    cluster.claim(1, "ReadWriteMany", volumeName="pv")
    cluster.job("j")
    cluster.pod("p", make_pod("user").on_node("n1"))
    cluster.enqueued.clear()
    cluster.caches.pods.replace([])
    assert cluster.enqueued == []


async def test_the_users_of_a_claim_are_enqueued_a_few_times_however_many_of_them_change(
    cluster: WatchedCluster,
) -> None:
    users = 200
    cluster.claim(1, "ReadWriteOncePod", volumeName="pv")
    for number in range(users):
        cluster.job(f"j{number}")
        cluster.pod(f"p{number}", make_pod(f"p{number}").on_node("n1"))
    cluster.enqueued.clear()
    cluster.caches.pods.replace([])
    assert users <= len(cluster.enqueued) <= 5 * users
    cluster.enqueued.clear()
    await until(lambda: len(cluster.enqueued) == users)
    assert cluster.watch._turns._late == set(), "what changed meanwhile is enqueued once, after the rest"


async def test_a_volume_that_is_made_for_a_claim_concerns_no_other(cluster: WatchedCluster) -> None:
    cluster.job("j")
    cluster.claim()
    cluster.enqueued.clear()
    made = {"claimRef": {"namespace": "default", "name": "other"}, "storageClassName": "fast"}
    cluster.caches.storage.volumes.apply(
        msgspec.convert({"metadata": {"name": "pv", "uid": "pv"}, "spec": made}, PersistentVolume)
    )
    assert cluster.enqueued == []
    freed = {
        "metadata": {"name": "pv", "uid": "pv", "resourceVersion": "2"},
        "spec": {"storageClassName": "fast"},
    }
    cluster.caches.storage.volumes.apply(msgspec.convert(freed, PersistentVolume))
    assert cluster.enqueued == ["j"]


async def test_volumes_of_one_class_enqueue_the_claims_without_one_a_few_times(
    cluster: WatchedCluster,
) -> None:
    for number in range(20):
        cluster.job(f"j{number}")
    cluster.claim()
    cluster.enqueued.clear()
    for number in range(100):
        free = {
            "metadata": {"name": f"pv{number}", "uid": f"pv{number}"},
            "spec": {"storageClassName": "fast"},
        }
        cluster.caches.storage.volumes.apply(msgspec.convert(free, PersistentVolume))
    assert len(cluster.enqueued) <= 3 * 20
