"""Which work is described again when a claim, a template or a class of devices changes."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.controller_bench import subscribed, until
from support.device_objects import a_claim, a_class, a_template, claiming, resource_claims
from support.queue_builders import a_job, a_pod

from fluxqueue.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.device_watch import DeviceWatch
from fluxqueue.queue.model.groups import GroupKey


class WatchedCluster:
    """A Job that uses the template t, a pod that uses the claim c, and what was enqueued."""

    def __init__(self) -> None:
        self.caches = Caches(cast("Api", None), devices=True)
        self.enqueued: list[str | GroupKey] = []
        self.watch = subscribed(DeviceWatch(self.caches, self.enqueued.append), self.caches)
        self.caches.jobs.apply(a_job(claiming(make_job("j").namespace("ns"), "t"), uid="j"))
        self.pod("p")

    def pod(self, uid: str, phase: str = "Pending") -> None:
        builder = (
            make_pod(uid)
            .namespace("ns")
            .with_("spec.resourceClaims", resource_claims(claim="c"))
            .phase(phase)
        )
        self.caches.pods.apply(a_pod(builder, uid=uid))

    def take(self) -> list[str | GroupKey]:
        found = [*self.enqueued]
        self.enqueued.clear()
        return found


@pytest.fixture
def cluster() -> WatchedCluster:
    return WatchedCluster()


def test_users_of_a_claim_follow_when_it_comes_gets_devices_and_goes(cluster: WatchedCluster) -> None:
    claims = cluster.caches.devices.claims
    claims.apply(msgspec.convert(a_claim("c", namespace="ns"), ResourceClaim))
    assert cluster.take() == ["p"]
    claims.apply(
        msgspec.convert(a_claim("c", namespace="ns", version=2, has=[("n1", "gpu-0")]), ResourceClaim)
    )
    assert cluster.take() == ["p"]
    claims.apply(
        msgspec.convert(
            a_claim("c", namespace="ns", version=3, has=[("n1", "gpu-0")], pod="p"), ResourceClaim
        )
    )
    assert cluster.take() == [], "it can be reached from the same nodes"
    claims.replace([])
    assert cluster.take() == ["p"]


def test_users_of_a_template_follow_it_and_all_work_with_claims_follows_a_class(
    cluster: WatchedCluster,
) -> None:
    cluster.caches.devices.templates.apply(
        msgspec.convert(a_template("t", namespace="ns"), ResourceClaimTemplate)
    )
    assert cluster.take() == ["j"]
    cluster.caches.devices.templates.apply(
        msgspec.convert(a_template("t", namespace="elsewhere"), ResourceClaimTemplate)
    )
    assert cluster.take() == []
    cluster.caches.devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    assert sorted(map(str, cluster.take())) == ["j", "p"]


def test_pods_that_ended_are_not_described_again(cluster: WatchedCluster) -> None:
    cluster.pod("ended", phase="Succeeded")
    cluster.caches.devices.claims.apply(msgspec.convert(a_claim("c", namespace="ns"), ResourceClaim))
    assert cluster.take() == ["p"]


def test_when_the_first_user_of_a_claim_goes_without_devices_the_others_follow(
    cluster: WatchedCluster,
) -> None:
    cluster.pod("next")
    claims = cluster.caches.devices.claims
    claims.apply(msgspec.convert(a_claim("c", namespace="ns"), ResourceClaim))
    cluster.take()
    cluster.caches.pods.remove(cluster.caches.pods.list()[0])
    assert cluster.take() == ["next"]
    claims.apply(
        msgspec.convert(a_claim("c", namespace="ns", version=2, has=[("n1", "gpu-0")]), ResourceClaim)
    )
    cluster.take()
    cluster.pod("third")
    cluster.caches.pods.replace([])
    assert cluster.take() == [], "it has its devices: they wait for nobody"


async def test_the_users_of_a_claim_are_enqueued_a_few_times_however_often_it_and_they_change(
    cluster: WatchedCluster,
) -> None:
    """Any of the users may change the claim, or end, thousands of times in a row."""
    users, claims = 200, cluster.caches.devices.claims
    for number in range(users):
        cluster.pod(f"p{number}")
    cluster.take()
    for version in range(1, 200):
        body = a_claim(
            "c", namespace="ns", version=version, has=[(f"n{version}", "gpu-0")] if version % 2 else ()
        )
        claims.apply(msgspec.convert(body, ResourceClaim))
    claims.apply(msgspec.convert(a_claim("c", namespace="ns", version=200), ResourceClaim))
    cluster.caches.pods.replace(cluster.caches.pods.list()[: users // 2])
    assert users <= len(cluster.take()) <= 3 * users
    await until(lambda: bool(cluster.enqueued))
    assert len(cluster.take()) == users // 2, "what has changed meanwhile is enqueued once, after the rest"
    cluster.watch.prune()
    assert not cluster.watch._turns._sizes
