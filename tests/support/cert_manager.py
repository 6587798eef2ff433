"""cert-manager on a local control plane: its programs, built once from `local/data/certmanager/go.mod`, and
its CustomResourceDefinitions.

The controller, the injector of authorities and the webhook run as processes, as an installation of
cert-manager runs them in pods. The solver of ACME challenges is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.local.binaries import are_programs, cached_programs
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.go_modules import GoModule
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process, wait_until
from fluxqueue.local.toolchain import build_tools
from fluxqueue.local.user_folders import cache_folder

__all__ = ["VERSION", "built_programs", "running_cert_manager"]

VERSION = "v1.11.5"
NAMESPACE = "cert-manager"
_MODULE = GoModule("certmanager", f"cert-manager {VERSION} (about 6 minutes on 2 cores, once)")
_PATH = "github.com/cert-manager/cert-manager"
_PROGRAMS = ("controller", "cainjector", "webhook")
_KINDS = ("certificates", "certificaterequests", "issuers", "clusterissuers")
_DEFINITIONS = ("certificates", "certificaterequests", "issuers", "clusterissuers", "orders", "challenges")


def built_programs(*, build: bool) -> Path | None:
    """Return the folder of the programs; None if they are not built and must not be."""
    folder = cache_folder() / "certmanager" / VERSION
    if not build and not are_programs(folder, _PROGRAMS):
        return None
    return cached_programs(folder, _PROGRAMS, lambda target: build_tools(target, module=_MODULE))


def definitions(work: Path) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions, from the module that go.sum verifies."""
    module = work / "module"
    module.mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        shutil.copy(_MODULE.folder / name, module / name)
    cache = os.environ.get("GOMODCACHE") or str(cache_folder() / "certmanager" / "modules")
    environment = {
        **os.environ,
        "GOMODCACHE": cache,
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
    }
    command = ["go", "mod", "download", "-json", _PATH]
    answer = subprocess.run(
        command, cwd=module, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    folder = Path(json.loads(answer.stdout)["Dir"]) / "deploy" / "crds"
    found = []
    for name in _DEFINITIONS:
        lines = (folder / f"crd-{name}.yaml").read_text().splitlines()
        definition = yaml.safe_load("\n".join(line for line in lines if "{{" not in line))
        definition["metadata"].pop("labels", None)
        found.append(definition)
    return found


@contextmanager
def running_cert_manager(cluster: ControlPlane, programs: Path, folder: Path) -> Iterator[None]:
    """Run cert-manager until the end of the block; returns once its webhook is called and trusted."""
    port = free_port()
    cluster.apply(
        *definitions(folder), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    cluster.apply(*_webhook_configurations(port))
    kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
    commands: dict[str, Sequence[str]] = {
        "controller": (
            f"--cluster-resource-namespace={NAMESPACE}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            f"--metrics-listen-address=127.0.0.1:{free_port()}",
        ),
        "cainjector": ("--leader-elect=false",),
        "webhook": (
            f"--secure-port={port}",
            f"--healthz-port={free_port()}",
            f"--dynamic-serving-ca-secret-namespace={NAMESPACE}",
            "--dynamic-serving-ca-secret-name=cert-manager-webhook-ca",
            "--dynamic-serving-dns-names=localhost",
        ),
    }
    processes = [
        Process(f"cert-manager {name}", [programs / name, kubeconfig, *arguments], folder / f"{name}.log")
        for name, arguments in commands.items()
    ]
    try:
        for process in processes:
            process.start()
        wait_until(lambda: _accepts_issuers(cluster), "cert-manager's webhook called and trusted", 120)
        yield
    finally:
        for process in processes:
            process.stop(5)


def _accepts_issuers(cluster: ControlPlane) -> bool:
    """True once the API server can create an Issuer, which cert-manager's webhook has to allow."""
    issuer = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": {"name": "canary", "namespace": NAMESPACE},
        "spec": {"selfSigned": {}},
    }
    return (
        cluster.kubectl(
            "create", "--dry-run=server", "-f", "-", stdin=json.dumps(issuer), check=False
        ).returncode
        == 0
    )


def _webhook_configurations(port: int) -> list[dict[str, Any]]:
    """Return both configurations: without the mutating one, no CertificateRequest names its requester."""
    return [
        _webhook_configuration(port, "MutatingWebhookConfiguration", "mutate"),
        _webhook_configuration(port),
    ]


def _webhook_configuration(
    port: int, kind: str = "ValidatingWebhookConfiguration", path: str = "validate"
) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": "cert-manager-webhook",
            "annotations": {"cert-manager.io/inject-ca-from-secret": f"{NAMESPACE}/cert-manager-webhook-ca"},
        },
        "webhooks": [
            {
                "name": "webhook.cert-manager.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://localhost:{port}/{path}"},
                "rules": [
                    {
                        "apiGroups": ["cert-manager.io"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": list(_KINDS),
                    }
                ],
            }
        ],
    }
