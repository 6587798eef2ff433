"""The cluster as `fluxqueue local demo` uses it: kubectl for what a person does, plain reads to follow the
objects.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.local.for_people import FIRST_NAMESPACE
from fluxqueue.local.kubectl import run_kubectl
from fluxqueue.local.screen import Screen
from fluxqueue.local.verdicts import NamespaceSnapshot, Row

if TYPE_CHECKING:
    from fluxqueue.fluxion.messages import JobInfo
    from fluxqueue.local.localcluster import LocalCluster

__all__ = ["DemoClient", "explain", "show"]

T = TypeVar("T")


class _Owned(PartialObject, frozen=True):
    """An object, with its owners."""

    metadata: ObjectMeta = ObjectMeta()


class DemoClient:
    """Calls to the cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._seen = NamespaceSnapshot()
        folders = [str(Path(sys.executable).parent), str(cluster.kubectl.parent)]
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig),
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
        }

    def kubectl(self, *arguments: str, timeout_s: float = 90) -> str:
        """Run kubectl; return what it printed."""
        return run_kubectl(self._cluster.kubectl, self.environment, arguments, timeout_s=timeout_s).stdout

    def look(self) -> NamespaceSnapshot:
        """Return the objects in the namespace of the demo."""
        where = f"namespaces/{FIRST_NAMESPACE}"
        fluxjobs = self._items(f"/apis/{names.API_VERSION}/{where}/{names.FLUXJOBS}", FluxJob)
        pods = self._items(f"/api/v1/{where}/pods", Pod)
        between = self._items(f"/apis/apps/v1/{where}/replicasets", _Owned) + self._items(
            f"/apis/batch/v1/{where}/jobs", _Owned
        )
        owners = {one.metadata.uid: one.metadata.controller.uid for one in between if one.metadata.controller}
        self._seen = NamespaceSnapshot(tuple(fluxjobs), tuple(pods), owners).with_deleted(self._seen)
        return self._seen

    def fluxion_jobs(self) -> tuple[JobInfo, ...]:
        """Return what is in the resource graph."""
        from fluxqueue.fluxion.messages import CallContext
        from fluxqueue.fluxion.rpc.client import FluxionClient

        with FluxionClient(self._cluster.fluxion_target) as client:
            return client.list_jobs(call=CallContext(), with_shares=True)

    def _items(self, path: str, kind: type[T]) -> list[T]:
        return [msgspec.convert(item, kind) for item in self._cluster.client.get(path)["items"]]


def show(client: DemoClient, screen: Screen, *words: str) -> None:
    """Show a command of the plugin with what it prints."""
    screen.command(["fluxqueue", *words], client.kubectl("fluxqueue", *words))


def explain(client: DemoClient, screen: Screen, row: Row) -> None:
    """Show how the plugin explains a workload."""
    if row.fluxjob is not None:
        show(client, screen, "explain", row.fluxjob.spec.object_ref.title, "-n", FIRST_NAMESPACE)
