"""What all pods of an agent share: the API server, this machine's processes, addresses and folders."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import msgspec

from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.transport import Api
from fluxqueue.local.kubelet.addresses import PodAddresses
from fluxqueue.local.kubelet.children import Children, Entry, StartFailed
from fluxqueue.local.kubelet.limits import ControlGroups
from fluxqueue.local.kubelet.volume_files import ObjectKey, TokenKey

__all__ = ["ClusterObjects", "Machine", "base_variables", "can_make_namespaces", "node_info"]


class _Content(msgspec.Struct, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class _TokenStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _Token(msgspec.Struct):
    status: _TokenStatus


@dataclass
class Machine:
    """What all pods of an agent share.

    Attributes
    ----------
    folder
        Has a folder for each pod.
    host_ip
        The address of every node.
    namespaces
        True if containers can have mounts and a host name of their own.
    variables
        What every container has in its environment.
    groups
        For limits of cpu and memory.
    """

    api: Api
    objects: ClusterObjects
    children: Children
    addresses: PodAddresses
    folder: Path
    host_ip: str
    namespaces: bool
    variables: Mapping[str, str]
    groups: ControlGroups

    @cached_property
    def has_flux(self) -> bool:
        """True if containers find a Flux."""
        return shutil.which("flux", path=self.variables.get("PATH")) is not None


class ClusterObjects:
    """ConfigMaps, Secrets and tokens, read from the API server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(
        self, namespace: str, keys: Iterable[ObjectKey], *, binary: bool = True
    ) -> dict[ObjectKey, Mapping[str, bytes] | None]:
        """Return the content of each object; None for one that does not exist.
        Files have ``binaryData``, variables have none.
        """
        wanted = sorted(keys)
        contents = await asyncio.gather(*(self._content(namespace, key, binary) for key in wanted))
        return dict(zip(wanted, contents, strict=True))

    async def _content(self, namespace: str, key: ObjectKey, with_binary: bool) -> Mapping[str, bytes] | None:
        kind, name = key
        try:
            found = msgspec.json.decode(
                await self._api.request("GET", f"/api/v1/namespaces/{namespace}/{kind}/{name}"), type=_Content
            )
        except NotFound:
            return None
        if kind == "secrets":
            return {key: base64.b64decode(text) for key, text in (found.data or {}).items()}
        binary = {
            key: base64.b64decode(text) for key, text in (found.binary_data or {}).items() if with_binary
        }
        return {key: text.encode() for key, text in (found.data or {}).items()} | binary

    async def token(self, namespace: str, account: str, pod: tuple[str, str], key: TokenKey) -> bytes:
        """Return a new token of a ServiceAccount that is bound to a pod (name, uid)."""
        spec = {
            "expirationSeconds": key.expiration_s,
            "audiences": [key.audience] if key.audience else [],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod[0], "uid": pod[1]},
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return msgspec.json.decode(
            await self._api.request("POST", path, body=body), type=_Token
        ).status.token.encode()


def base_variables(api_server_port: int) -> dict[str, str]:
    """Return what every container has in its environment: where programs and the API server are."""
    here, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    return {
        "PATH": path if here in path.split(os.pathsep) else f"{here}{os.pathsep}{path}",
        "LANG": "C.UTF-8",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api_server_port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(api_server_port),
    }


async def can_make_namespaces(children: Children) -> bool:
    """True if a process of this user can have mounts and a host name of its own:
    tried, because many settings can forbid it.
    """
    with tempfile.TemporaryDirectory(prefix="fluxqueue-entry-") as folder:
        root = Path(folder, "root")
        root.mkdir()  # noqa: ASYNC240  (once, before anything runs)
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            child = await children.start(
                Entry(
                    ["true"], "/", root=str(root), mounts=[(folder, "/etc/fluxqueue-entry")], hostname="entry"
                ),
                {"PATH": os.environ.get("PATH", os.defpath)},
                nothing,
                nothing,
                nothing,
            )
        except StartFailed:
            return False
        finally:
            os.close(nothing)
        return await child.ended == 0


def node_info(kubelet_version: str) -> dict[str, str]:
    """Return ``nodeInfo`` of this machine."""
    system = "Linux"
    with contextlib.suppress(OSError):
        system = platform.freedesktop_os_release().get("PRETTY_NAME", system)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "architecture": machine,
        "operatingSystem": "linux",
        "osImage": system,
        "kernelVersion": platform.release(),
        "containerRuntimeVersion": "processes://1",
        "kubeletVersion": kubelet_version,
        "kubeProxyVersion": "",
        "bootID": "",
        "machineID": "",
        "systemUUID": "",
    }
