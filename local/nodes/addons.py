"""What a cluster has besides its nodes: names (CoreDNS), and local volumes behind a default StorageClass.

Volumes are folders of a machine, made in advance and bound when a pod that claims one is placed. A volume is
not cleaned when its claim is deleted, as with any local volume; `free_volumes` does that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.applying import Applier
from fluxqueue.local.nodes.layout import DNS_ADDRESS, Machine

__all__ = ["COREDNS_IMAGE", "STORAGE_CLASS", "apply_coredns", "free_volumes", "make_volumes", "names_work"]

COREDNS_IMAGE = "localhost/coredns:1"
STORAGE_CLASS = "local"
_VOLUMES = "/api/v1/persistentvolumes"
_DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
_CAPACITY = "8Gi"


def apply_coredns(client: ApiServerClient) -> None:
    """Apply the objects of CoreDNS."""
    text = (
        Path(__file__)
        .with_name("coredns.yaml")
        .read_text()
        .replace("@IMAGE@", COREDNS_IMAGE)
        .replace("@ADDRESS@", DNS_ADDRESS)
    )
    Applier(client).apply(yaml.safe_load_all(text), "kube-system")


def names_work(client: ApiServerClient) -> bool:
    """Return true if every replica of CoreDNS is ready."""
    deployment = client.find(_DEPLOYMENT) or {"status": {}}
    status = deployment["status"]
    return bool(
        status.get("readyReplicas") == deployment.get("spec", {}).get("replicas")
        and not status.get("unavailableReplicas")
    )


def make_volumes(client: ApiServerClient, machines: Iterable[Machine]) -> None:
    """Make three local volumes on each machine, and the default StorageClass that offers them;
    those that exist stay.
    """
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [_volume(machine, number) for machine in machines for number in range(1, 4)]
    Applier(client).apply([storage_class, *volumes], "default")


def free_volumes(client: ApiServerClient, machines: Iterable[Machine]) -> None:
    """Empty volumes whose claim is gone, and offer them again."""
    for machine in machines:
        for volume in client.get(_VOLUMES)["items"]:
            name = volume["metadata"]["name"]
            if volume["status"].get("phase") == "Released" and name.startswith(f"{machine.name}-"):
                folder = Path(volume["spec"]["local"]["path"])
                shutil.rmtree(folder)
                folder.mkdir()
                client.request("PATCH", f"{_VOLUMES}/{name}", {"spec": {"claimRef": None}})


def _volume(machine: Machine, number: int) -> Mapping[str, Any]:
    folder = machine.folder / "volumes" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{machine.name}-{number}"},
        "spec": {
            "capacity": {"storage": _CAPACITY},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
