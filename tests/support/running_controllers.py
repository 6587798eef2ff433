"""Runs a controller of another project next to a local cluster, with the manifests that the project ships.

Its Deployment is left out, because the program runs here, and its webhooks lead to this machine, with a
certificate of this module. All else is as shipped: definitions, rights, which objects its webhooks are called
for, and the ServiceAccount that it works with.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.ecosystem_controllers import EcosystemController, Launch
from support.gang_discovery import until_followed

from fluxqueue.local.binaries import Tool
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.pki import Authority
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process

__all__ = ["ecosystem_cluster", "installed_objects"]

_KINDS = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
)
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_RUNTIME = "ClusterTrainingRuntime"
_READY_S = 120


@contextmanager
def ecosystem_cluster(
    folder: Path, controllers: Mapping[EcosystemController, Path]
) -> Iterator[InProcessCluster]:
    """Run a cluster of four nodes of 4 cpu, and controllers, each from the folder of its program,
    until the end of the block.
    """
    more = {name: value for controller in controllers for name, value in controller.queue_config().items()}
    values = {
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10, **more}},
        "gangs": {"resources": sorted(name for controller in controllers for name in controller.resources)},
    }
    name = "-".join(controller.name for controller in controllers)
    cluster = InProcessCluster(
        folder / name, ClusterOptions(nodes=4, node_cpu="4", durable=False, values=values)
    )
    processes: list[Process] = []
    try:
        cluster.start()
        for controller, programs in controllers.items():
            processes.append(_started(cluster, folder / f"{name}-{controller.name}", controller, programs))
            until_followed(cluster, controller.resources)
        yield cluster
    finally:
        for process in processes:
            process.stop(5)
        cluster.destroy()


def _started(
    cluster: InProcessCluster, folder: Path, controller: EcosystemController, programs: Path
) -> Process:
    """Install a controller, start it, and return its process once it and its webhooks answer."""
    folder.mkdir(parents=True)
    authority = Authority(folder / "pki", datetime.datetime.now(datetime.UTC))
    pair = authority.issue_server("webhook", ["127.0.0.1", "localhost"])
    launch = Launch(folder, free_port(), controller.health_port or free_port())
    for certificates in filter(None, (launch.certificates, controller.fixed_certificates)):
        certificates.mkdir(parents=True, exist_ok=True)
        shutil.copy(pair.certificate, certificates / "tls.crt")
        shutil.copy(pair.key, certificates / "tls.key")
    plane = cluster.control_plane
    namespace, account = controller.account
    documents = _rendered(
        plane.binaries[Tool.KUBECTL], folder, namespace, [programs / path for path in controller.manifests]
    )
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    installed = installed_objects(documents, launch.webhook_port, authority.bundle.read_bytes())
    plane.apply(
        *(each for each in installed if controller.has_webhooks or each["kind"] not in _WEBHOOKS),
        namespace=namespace,
    )
    definitions = [f"crd/{each['metadata']['name']}" for each in installed if each["kind"] == _KINDS[0]]
    plane.kubectl("wait", *definitions, "--for=condition=Established", "--timeout=60s")
    kubeconfig = plane.service_account_kubeconfig(namespace, account)
    process = Process(
        controller.title,
        [programs / controller.program, *controller.arguments(launch)],
        log=folder / "controller.log",
        environment={
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
            "KUBECONFIG": str(kubeconfig),
            "TMPDIR": str(folder),
            **dict(controller.environment),
        },
        folder=folder,
    )
    process.start()
    try:
        process.wait_ready(lambda: _is_ready(controller, launch), _READY_S)
        plane.apply(
            *(document for document in documents if document["kind"] == _RUNTIME), namespace=namespace
        )
    except BaseException:
        process.stop(0)
        raise
    return process


def _rendered(kubectl: Path, folder: Path, namespace: str, sources: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the objects of kustomizations and files, in one namespace."""
    kustomization = {
        "namespace": namespace,
        "resources": [os.path.relpath(source, folder) for source in sources],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    command: list[str | Path] = [kubectl, "kustomize", "--load-restrictor=LoadRestrictionsNone", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def installed_objects(
    documents: Sequence[dict[str, Any]], port: int, authority: bytes
) -> list[dict[str, Any]]:
    """Return what is installed of a project's manifests, in order,
    with webhooks that lead to a port of this machine.
    """
    for document in documents:
        if document["kind"] == _KINDS[0]:
            document["spec"].pop("conversion", None)
        for hook in document["webhooks"] if document["kind"] in _WEBHOOKS else ():
            path = hook["clientConfig"]["service"].get("path", "")
            bundle = base64.b64encode(authority).decode()
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    order = (*_KINDS, *_WEBHOOKS)
    return sorted(
        (each for each in documents if each["kind"] in order), key=lambda each: order.index(each["kind"])
    )


def _is_ready(controller: EcosystemController, launch: Launch) -> bool:
    return _answers(launch.health_port, controller.health_path) and (
        not controller.has_webhooks or _listens(launch.webhook_port)
    )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status) == 200
    except OSError:
        return False
