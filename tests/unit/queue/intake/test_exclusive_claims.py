from __future__ import annotations

from typing import cast

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.claim_cluster import ClaimCluster
from support.device_objects import a_claim, claiming
from support.queue_builders import a_job, a_new_workload, a_workload

from fluxqueue.api.devices import ResourceClaim
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.exclusive_claims import ExclusiveClaims
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.store.ledger import Ledger

ONE_POD = "ReadWriteOncePod"


@pytest.fixture
def cluster() -> ClaimCluster:
    return ClaimCluster()


def assigned(cluster: ClaimCluster, *uids: str) -> list[NewWorkload]:
    return ExclusiveClaims(cluster.caches, cluster.ledger).assign([a_new_workload(uid) for uid in uids])


def test_a_claim_that_another_pod_uses_is_waited_for_with_its_name(cluster: ClaimCluster) -> None:
    cluster.claim(1, ONE_POD, volumeName="pv")
    cluster.job("j")
    cluster.pod("p", make_pod("user").on_node("n1"))
    (waits,) = assigned(cluster, "j")
    assert waits.reason is Reason.WAITING_FOR_VOLUMES
    assert "PersistentVolumeClaim default/data is for one pod at a time" in waits.message
    assert "Pod default/user uses it" in waits.message
    cluster.caches.pods.replace([])
    assert assigned(cluster, "j")[0].reason is Reason.NONE


def test_a_claim_for_many_pods_is_not_waited_for(cluster: ClaimCluster) -> None:
    cluster.claim(1, "ReadWriteMany", volumeName="pv")
    cluster.job("j")
    cluster.pod("p", make_pod("user").on_node("n1"))
    assert assigned(cluster, "j")[0].reason is Reason.NONE


def test_a_job_does_not_wait_for_its_own_pod(cluster: ClaimCluster) -> None:
    cluster.claim(1, ONE_POD, volumeName="pv")
    cluster.job("j")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    cluster.pod("p", make_pod("own").with_("metadata.ownerReferences", [owner]).on_node("n1"))
    assert assigned(cluster, "j")[0].reason is Reason.NONE


def test_the_users_of_a_claim_are_looked_for_once_for_all_that_wait_for_it(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of thousands of pods that name one claim would be compared with all of them otherwise."""
    cluster.claim(1, ONE_POD, volumeName="pv")
    for number in range(10):
        cluster.job(f"j{number}")
    cluster.pod("p", make_pod("user").on_node("n1"))
    asked: list[object] = []
    pods_with_claim = cluster.caches.pods_with_claim

    def counted(claim: tuple[str, str]) -> list[Pod]:
        asked.append(claim)
        return pods_with_claim(claim)

    monkeypatch.setattr(cluster.caches, "pods_with_claim", counted)
    found = assigned(cluster, *(f"j{number}" for number in range(10)))
    assert {each.reason for each in found} == {Reason.WAITING_FOR_VOLUMES}
    assert len(asked) <= 2, "once for the pods that use it, once for the workloads"


def test_of_two_new_workloads_the_first_gets_the_claim(cluster: ClaimCluster) -> None:
    two_jobs(cluster)
    assert [each.reason for each in assigned(cluster, "first", "second")] == [
        Reason.NONE,
        Reason.WAITING_FOR_VOLUMES,
    ]


def test_the_workload_that_was_submitted_first_gets_the_claim(cluster: ClaimCluster) -> None:
    two_jobs(cluster)
    cluster.rows.rows = [a_workload(uid, uid=uid) for uid in ("first", "second")]
    assert assigned(cluster, "first")[0].reason is Reason.NONE
    assert "Job default/first is to have it first" in assigned(cluster, "second")[0].message


def test_a_held_workload_keeps_no_other_waiting(cluster: ClaimCluster) -> None:
    two_jobs(cluster)
    cluster.rows.rows = [
        a_workload("first", uid="first", reason=Reason.HELD),
        a_workload("second", uid="second"),
    ]
    assert assigned(cluster, "second")[0].reason is Reason.NONE


def test_a_workload_with_nodes_has_the_claim_whatever_the_order(cluster: ClaimCluster) -> None:
    two_jobs(cluster)
    second: Workload = a_workload("second", uid="second", state=State.ALLOCATED)
    cluster.rows.rows = [a_workload("first", uid="first"), second]
    assert "Job default/second is to have it first" in assigned(cluster, "first")[0].message


def two_jobs(cluster: ClaimCluster) -> None:
    cluster.claim(1, ONE_POD, volumeName="pv")
    for uid in ("first", "second"):
        cluster.job(uid)


def test_a_claim_of_devices_that_has_none_yet_is_for_one_workload() -> None:
    caches = Caches(cast("Api", None), devices=True)
    rows = ClaimCluster().rows
    for uid in ("first", "second"):
        caches.jobs.apply(a_job(claiming(make_job(uid).namespace("default"), claim="gpu"), uid=uid))
    caches.devices.claims.apply(msgspec.convert(a_claim("gpu", namespace="default"), ResourceClaim))
    both = [a_new_workload(uid) for uid in ("first", "second")]
    first, second = ExclusiveClaims(caches, cast("Ledger", rows)).assign(both)
    assert first.reason is Reason.NONE
    assert second.reason is Reason.WAITING_FOR_VOLUMES
    assert (
        "ResourceClaim default/gpu has no devices yet, and Job default/job-first is to have it first"
        in second.message
    )
    caches.devices.claims.apply(
        msgspec.convert(a_claim("gpu", namespace="default", has=[("n1", "gpu-0")], version=2), ResourceClaim)
    )
    assert [each.reason for each in ExclusiveClaims(caches, cast("Ledger", rows)).assign(both)] == [
        Reason.NONE,
        Reason.NONE,
    ]
