"""Claims prepared for their nodes by the real volume controllers; the tests act as the provisioner."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.builders import make_pod

from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import CLAIMS, PODS, STORAGE_CLASSES, VOLUMES
from fluxqueue.kube.transport import Api
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FITS, FitResult, FitStatus, check_gang
from fluxqueue.scheduler_plugin.claims import ClaimBinder

PROVISIONER = "provisioner.example.com"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_S = 60
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """Two nodes and volume controllers, without a scheduler."""
    cluster = ControlPlane(service_folder / "claims", nodes=2, options=ControlPlaneOptions(volumes=True))
    cluster.start()
    cluster.stop_component(Component.SCHEDULER, graceful=False)
    yield cluster
    cluster.destroy()


class Stage:
    """A namespace, the cluster's state, and claim binders that are started one after another."""

    def __init__(self, api: Api, stack: AsyncExitStack) -> None:
        self.api = api
        self.room = f"claims-{next(_numbers)}"
        self._stack = stack

    async def start(self) -> None:
        await self.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": self.room}})
        self.caches, self.binder = await self.another_binder()
        await self.storage_class("late", PROVISIONER)
        await self.storage_class("static", "kubernetes.io/no-provisioner")

    async def another_binder(self) -> tuple[SchedulerCaches, ClaimBinder]:
        """Start a claim binder like a new leader, with no state but the API server's."""
        caches = SchedulerCaches(self.api)
        watching = asyncio.create_task(caches.watches.run())
        self._stack.callback(watching.cancel)
        await asyncio.wait_for(caches.watches.synced(), WAIT_S)
        return caches, ClaimBinder(self.api, caches.storage)

    async def storage_class(self, name: str, provisioner: str) -> None:
        """Create a StorageClass for this test only, so that no volume of another test is free for it."""
        body = {
            "metadata": {"name": f"{self.room}-{name}"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await self.api.create(STORAGE_CLASSES, body)
        await self.until(lambda: self.caches.storage.storage_class(f"{self.room}-{name}") is not None)

    async def claim(
        self,
        name: str,
        storage_class: str = "late",
        size: str = "1Gi",
        mode: str = "ReadWriteOnce",
        **metadata: Any,
    ) -> None:
        spec = {
            "storageClassName": f"{self.room}-{storage_class}",
            "accessModes": [mode],
            "resources": {"requests": {"storage": size}},
        }
        await self.api.create(CLAIMS, {"metadata": {"name": name, **metadata}, "spec": spec}, self.room)
        await self.until(lambda: self.caches.storage.claim(self.room, name) is not None)

    async def volume(self, name: str, size: str = "1Gi", node: str = "node-1", **spec: Any) -> str:
        where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        whole = {
            "storageClassName": f"{self.room}-static",
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
            **spec,
        }
        full = f"{self.room}-{name}"
        await self.api.create(VOLUMES, {"metadata": {"name": full}, "spec": whole})
        if "claimRef" not in spec:
            await self.until(
                lambda: (
                    (found := self.caches.storage.volume(full)) is not None
                    and found.status.phase == "Available"
                )
            )
        return full

    async def pod(self, name: str, *claims: str, **changes: Any) -> Pod:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        pod = (
            make_pod(name)
            .namespace(self.room)
            .with_("spec.schedulerName", "FluxionScheduler")
            .with_("spec.volumes", volumes)
        )
        for path, value in changes.items():
            pod = pod.with_(path.replace("__", "."), value)
        await self.until(lambda: self.caches.namespaces.get("", self.room) is not None)
        while True:
            try:
                return await self.api.create(PODS, pod.build(), self.room)
            except Exception as error:
                if "serviceaccount" not in str(error):
                    raise
                await asyncio.sleep(0.1)

    async def prepared(self, pod: Pod, node: str = "node-1", binder: ClaimBinder | None = None) -> FitResult:
        """Return the final result: WAITS is tried again, as the dispatcher does when something changes."""
        found = await (binder or self.binder).prepare(pod, node)
        async with asyncio.timeout(WAIT_S):
            while found.status is FitStatus.WAITS:
                await asyncio.sleep(0.05)
                found = await (binder or self.binder).prepare(pod, node)
        return found

    async def provision(self, claim: str, node: str = "node-1") -> None:
        """Create a volume for a claim, as its provisioner does."""
        asked = await self.api.get(CLAIMS, claim, self.room)
        assert asked.selected_node == node
        reference = {
            "kind": "PersistentVolumeClaim",
            "namespace": self.room,
            "name": claim,
            "uid": asked.metadata.uid,
        }
        await self.volume(
            f"made-for-{claim}", node=node, storageClassName=f"{self.room}-late", claimRef=reference
        )

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.02)


@pytest.fixture
async def stage(cluster: ControlPlane) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api.connect(cluster.kubeconfig))
        stage = Stage(api, stack)
        await stage.start()
        yield stage


async def test_a_claim_gets_its_volume_on_the_node_of_its_pod(stage: Stage) -> None:
    await stage.claim("data")
    pod = await stage.pod("p", "data")
    found = await stage.binder.prepare(pod, "node-1")
    assert found.status is FitStatus.WAITS
    assert (
        found.message
        == f"the volume of PersistentVolumeClaim {stage.room}/data is being made for node node-1"
    )
    await stage.provision("data")
    assert await stage.prepared(pod) == FITS
    assert check_gang([(pod, "node-1")], stage.caches)[pod.metadata.uid] == FITS
    other = check_gang([(pod, "node-2")], stage.caches)[pod.metadata.uid]
    assert other.status is FitStatus.REFUSED
    assert "cannot be reached from node node-2" in other.message


async def test_a_volume_is_requested_once_however_often_its_claim_is_checked(stage: Stage) -> None:
    await stage.claim("data")
    pod = await stage.pod("p", "data")
    before = stage.api.calls["patch", "persistentvolumeclaims"]
    for _ in range(5):
        assert (await stage.binder.prepare(pod, "node-1")).status is FitStatus.WAITS
    assert stage.api.calls["patch", "persistentvolumeclaims"] == before + 1


async def test_a_claim_of_another_node_refuses_and_one_for_many_is_awaited(stage: Stage) -> None:
    await stage.claim("alone", annotations={SELECTED_NODE: "node-2"})
    await stage.claim("shared", mode="ReadWriteMany", annotations={SELECTED_NODE: "node-2"})
    refused = await stage.binder.prepare(await stage.pod("p", "alone"), "node-1")
    assert refused.status is FitStatus.REFUSED
    assert refused.message == (
        f"the volume of PersistentVolumeClaim {stage.room}/alone is being made for node node-2, "
        "not for node node-1"
    )
    waits = await stage.binder.prepare(await stage.pod("q", "shared"), "node-1")
    assert waits.status is FitStatus.WAITS
    assert "is being made for node node-2" in waits.message


async def test_a_provisioner_that_fails_refuses_the_node_once(stage: Stage) -> None:
    await stage.claim("data")
    pod = await stage.pod("p", "data")
    assert (await stage.binder.prepare(pod, "node-1")).status is FitStatus.WAITS
    given_up = await stage.api.patch(
        CLAIMS, "data", {"metadata": {"annotations": {SELECTED_NODE: None}}}, namespace=stage.room
    )
    version = given_up.metadata.resource_version

    def seen() -> bool:
        claim = stage.caches.storage.claim(stage.room, "data")
        return claim is not None and claim.metadata.resource_version == version

    await stage.until(seen)
    found = await stage.binder.prepare(pod, "node-1")
    assert found.status is FitStatus.REFUSED
    assert "its provisioner removed the node from the claim" in found.message
    assert (await stage.binder.prepare(pod, "node-2")).message.endswith("is being made for node node-2")


async def test_the_smallest_free_volume_of_the_node_is_chosen(stage: Stage) -> None:
    await stage.volume("far", "1Gi", "node-2")
    for name, size in (("small", "500Mi"), ("large", "5Gi"), ("right", "2Gi")):
        await stage.volume(name, size)
    await stage.claim("data", "static")
    pod = await stage.pod("p", "data")
    assert await stage.prepared(pod) == FITS
    assert (await stage.api.get(CLAIMS, "data", stage.room)).spec.volume_name == f"{stage.room}-right"
    await stage.claim("more", "static", size="9Gi")
    refused = await stage.binder.prepare(await stage.pod("q", "more"), "node-1")
    assert refused.status is FitStatus.REFUSED
    assert "finds no free volume of the StorageClass" in refused.message


async def test_a_new_leader_goes_on_with_the_volume_that_was_chosen(
    cluster: ControlPlane, stage: Stage
) -> None:
    await stage.volume("one")
    await stage.volume("two")
    await stage.claim("data", "static")
    pod = await stage.pod("p", "data")
    cluster.stop_component(Component.CONTROLLER_MANAGER, graceful=False)
    try:
        assert (await stage.binder.prepare(pod, "node-1")).status is FitStatus.WAITS
        _, successor = await stage.another_binder()
        before = stage.api.calls["patch", "persistentvolumes"]
        assert (await successor.prepare(pod, "node-1")).message.endswith(
            f"is being bound to the volume {stage.room}-one"
        )
        assert stage.api.calls["patch", "persistentvolumes"] == before
    finally:
        cluster.start_component(Component.CONTROLLER_MANAGER)
    assert await stage.prepared(pod, binder=successor) == FITS
    assert (await stage.api.get(CLAIMS, "data", stage.room)).spec.volume_name == f"{stage.room}-one"


async def test_claims_that_want_one_volume_at_once_get_one_each(stage: Stage) -> None:
    for name in ("one", "two", "three"):
        await stage.volume(name)
    _, rival = await stage.another_binder()
    for name in ("a", "b", "c"):
        await stage.claim(name, "static")
    pods = [await stage.pod(f"p-{name}", name) for name in ("a", "b", "c")]
    binders = (stage.binder, stage.binder, rival)
    found = await asyncio.gather(
        *(stage.prepared(pod, binder=binder) for pod, binder in zip(pods, binders, strict=True))
    )
    assert found == [FITS] * 3
    chosen = {(await stage.api.get(CLAIMS, name, stage.room)).spec.volume_name for name in ("a", "b", "c")}
    assert chosen == {f"{stage.room}-{name}" for name in ("one", "two", "three")}


async def test_the_claim_of_an_ephemeral_volume_is_awaited_and_must_be_its_pods(stage: Stage) -> None:
    spec = {
        "storageClassName": f"{stage.room}-late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
    pod = await stage.pod("p", spec__volumes=volumes)
    async with asyncio.timeout(WAIT_S):
        while (found := await stage.binder.prepare(pod, "node-1")).message.endswith(
            "for the ephemeral volume 'scratch'"
        ):
            assert found.status is FitStatus.WAITS
            await asyncio.sleep(0.05)
    assert (
        found.message
        == f"the volume of PersistentVolumeClaim {stage.room}/p-scratch is being made for node node-1"
    )
    await stage.provision("p-scratch")
    assert await stage.prepared(pod) == FITS
    await stage.claim("q-scratch")
    stolen = await stage.binder.prepare(await stage.pod("q", spec__volumes=volumes), "node-1")
    assert stolen.status is FitStatus.WAITS
    assert "was not made for the ephemeral volume 'scratch' of this pod" in stolen.message
