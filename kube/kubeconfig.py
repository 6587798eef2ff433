"""Kubeconfigs, read as kubectl reads them: for the plugin, the Python client, and services outside of a pod.

The official client takes half a second to import and 126 MB of disk. So this module reads the common forms
itself: the ``KUBECONFIG`` list (:mod:`fluxqueue.kube.kubeconfig_files`), certificates, tokens, passwords,
exec plugins, and the ServiceAccount of a pod. The old ``auth-provider`` section is left to
``kubernetes.config``, if that is installed.

All files are read into memory at once. The result is plain data and does not depend on files that may change.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fluxqueue.kube.kubeconfig_files import Entry, InvalidKubeconfig, Merged, merge

__all__ = [
    "Connection",
    "connection",
    "context_names",
    "default_namespace",
    "impersonation",
    "in_cluster",
]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in which the kubelet mounts the token and the CA certificate of the API server."""
_EXEC_TIMEOUT_S = 60


@dataclass(frozen=True)
class Connection:
    """Address and credentials of an API server; PEM blocks are in memory.

    ``plugin_valid_until`` is a Unix time: how long what an exec plugin said is valid. It is infinite if the
    plugin gave no time, and zero if no plugin was asked.
    """

    server: str
    context: str = ""
    namespace: str = "default"
    ca_pem: bytes | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    client_cert_pem: bytes | None = field(default=None, repr=False)
    client_key_pem: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    impersonation: tuple[tuple[str, str], ...] = ()
    plugin_valid_until: float = 0.0


def connection(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find the cluster and the credentials.

    Parameters
    ----------
    kubeconfig
        File from the command line; it must exist, and no other file is read. Otherwise the files of
        ``KUBECONFIG`` are read, or else ``~/.kube/config``, or else the pod's ServiceAccount.
    context
        Context to use instead of the current one.
    environ
        Environment; by default that of the process.
    service_account
        Folder of the pod's token, for tests.

    Returns
    -------
    Connection
        Ready to use; an exec plugin has already returned its credentials.

    Raises
    ------
    InvalidKubeconfig
        With kubectl's message, if it has one.
    """
    env = os.environ if environ is None else environ
    paths = _paths(kubeconfig, env)
    present = [path for path in paths if path.is_file()]
    if not present:
        if "KUBERNETES_SERVICE_HOST" in env and (service_account / "token").is_file():
            return in_cluster(env, service_account)
        raise InvalidKubeconfig(
            f"no kubeconfig at {os.pathsep.join(map(str, paths))}: give --kubeconfig FILE or set KUBECONFIG "
            '(for the local control plane: eval "$(fluxqueue local env)")'
        )
    return _chosen(merge(present), context, env)


def context_names() -> list[str]:
    """Return the names of the contexts in the files that `connection` reads by default."""
    present = [path for path in _paths(None, os.environ) if path.is_file()]
    return sorted(merge(present).contexts)


def _paths(kubeconfig: str | None, env: Mapping[str, str]) -> list[Path]:
    if kubeconfig is not None:
        if not Path(kubeconfig).is_file():
            raise InvalidKubeconfig(f"stat {kubeconfig}: no such file or directory")
        return [Path(kubeconfig)]
    if listed := env.get("KUBECONFIG", ""):
        return [Path(part) for part in listed.split(os.pathsep) if part]
    return [Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"]


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace of the context, without its credentials: no plugin runs.

    Without a kubeconfig, or without the context in it, it is that of the pod's ServiceAccount, else
    ``default``.
    """
    present = [path for path in _paths(kubeconfig, os.environ) if path.is_file()]
    if not present:
        file = SERVICE_ACCOUNT / "namespace"
        return file.read_text().strip() if file.is_file() else "default"
    merged = merge(present)
    chosen = merged.contexts.get(context or merged.current)
    return (chosen.text("namespace") if chosen is not None else None) or "default"


def impersonation(
    kubeconfig: str | None = None, context: str | None = None, environ: Mapping[str, str] | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the headers with which the user of the context is somebody else, without its credentials: no
    plugin runs.

    ``kubeconfig`` may be several files, as ``KUBECONFIG`` is.
    """
    env = {"KUBECONFIG": kubeconfig} if kubeconfig is not None else os.environ if environ is None else environ
    present = [path for path in _paths(None, env) if path.is_file()]
    merged = merge(present)
    chosen = merged.contexts.get(context or merged.current)
    user = merged.users.get(chosen.text("user") or "") if chosen is not None else None
    return _impersonation(user) if user is not None else ()


def _chosen(merged: Merged, context: str | None, env: Mapping[str, str]) -> Connection:
    name = context or merged.current
    if not name:
        raise InvalidKubeconfig(
            f"no current context is set in {os.pathsep.join(map(str, merged.paths))}: give --context"
        )
    if name not in merged.contexts:
        raise InvalidKubeconfig(f'context "{name}" does not exist')
    chosen = merged.contexts[name]
    cluster = _named(merged.clusters, chosen, "cluster", name)
    user = _named(merged.users, chosen, "user", name) if chosen.body.get("user") else Entry({}, chosen.path)
    server = cluster.text("server")
    if server is None:
        raise InvalidKubeconfig(f'{cluster.path}: cluster of context "{name}" has no server')
    said = _identity(user, cluster, merged, name, env)
    return Connection(
        server=server.rstrip("/"),
        context=name,
        namespace=chosen.text("namespace") or "default",
        ca_pem=cluster.bytes_of("certificate-authority"),
        insecure=bool(cluster.body.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.text("tls-server-name"),
        proxy_url=cluster.text("proxy-url"),
        client_cert_pem=said.cert,
        client_key_pem=said.key,
        headers={"Authorization": said.authorization} if said.authorization else {},
        impersonation=_impersonation(user),
        plugin_valid_until=said.valid_until,
    )


def _named(entries: Mapping[str, Entry], chosen: Entry, key: str, context: str) -> Entry:
    name = str(chosen.body.get(key, ""))
    if name not in entries:
        raise InvalidKubeconfig(f'{key} "{name}" of context "{context}" does not exist')
    return entries[name]


@dataclass(frozen=True)
class _Identity:
    """Who asks: the Authorization header, or a client certificate with its key."""

    authorization: str | None = None
    cert: bytes | None = None
    key: bytes | None = None
    valid_until: float = 0.0


def _identity(user: Entry, cluster: Entry, merged: Merged, context: str, env: Mapping[str, str]) -> _Identity:
    said = _Identity(
        _authorization(user, merged, context),
        user.bytes_of("client-certificate"),
        user.bytes_of("client-key"),
    )
    if said.authorization is None and (plugin := user.body.get("exec")):
        if not isinstance(plugin, dict):
            raise InvalidKubeconfig(f"{user.path}: the exec section is no mapping")
        asked = _ask_plugin(plugin, user.path, cluster, env)
        said = replace(asked, cert=asked.cert or said.cert, key=asked.key or said.key)
    if (said.cert is None) != (said.key is None):
        raise InvalidKubeconfig(
            f'{user.path}: user of context "{context}" has a client certificate without its key, '
            "or the reverse"
        )
    return said


def _authorization(user: Entry, merged: Merged, context: str) -> str | None:
    if token_file := user.text("tokenFile"):
        return _bearer(user.read(token_file, "tokenFile").decode(errors="replace"), f"{user.path}: tokenFile")
    if token := user.text("token"):
        return _bearer(token, f"{user.path}: token")
    if username := user.text("username"):
        pair = base64.b64encode(f"{username}:{user.text('password') or ''}".encode()).decode()
        return f"Basic {pair}"
    if "auth-provider" in user.body and not user.body.get("exec"):
        return _from_official_client(merged.paths, context)
    return None


def _impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    """Return the headers that make requests those of somebody else; one header for each group."""
    groups, extra = user.body.get("as-groups") or (), user.body.get("as-user-extra") or {}
    if (
        not isinstance(groups, list | tuple)
        or not isinstance(extra, dict)
        or not all(isinstance(each, list) for each in extra.values())
    ):
        raise InvalidKubeconfig(f"{user.path}: as-groups is no list, or as-user-extra no mapping of lists")
    named = (("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid")))
    pairs = [(header, value) for header, value in named if value]
    pairs += [("Impersonate-Group", str(group)) for group in groups]
    pairs += [
        (f"Impersonate-Extra-{urllib.parse.quote(str(key), safe='')}", str(value))
        for key, values in extra.items()
        for value in values
    ]
    return tuple(pairs)


def _bearer(token: str, what: str) -> str:
    """Return the header of a token; one that no header can have is refused here,
    where the message does not show it.
    """
    text = token.strip()
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise InvalidKubeconfig(f"{what} has characters that no token has: write it on one line")
    return f"Bearer {text}"


def _ask_plugin(plugin: Mapping[str, Any], path: Path, cluster: Entry, env: Mapping[str, str]) -> _Identity:
    """Run a credential plugin (client.authentication.k8s.io: ExecCredential on standard output)."""
    command = str(plugin.get("command") or "")
    if not command:
        raise InvalidKubeconfig(f"{path}: the exec section has no command")
    program = str(path.parent / command) if os.sep in command else command
    spec: dict[str, Any] = {
        "interactive": plugin.get("interactiveMode") != "Never"
        and sys.stdin is not None
        and sys.stdin.isatty()
    }
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {
            k: v
            for k, v in cluster.body.items()
            if k in ("server", "certificate-authority-data", "tls-server-name")
        }
    info = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
    extra = {str(item.get("name")): str(item.get("value")) for item in plugin.get("env") or ()}
    try:
        done = subprocess.run(
            [program, *map(str, plugin.get("args") or ())],
            env={**env, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdout=subprocess.PIPE,
            stdin=None if spec["interactive"] else subprocess.DEVNULL,
            timeout=_EXEC_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        hint = f"; {' '.join(str(plugin['installHint']).split())}" if plugin.get("installHint") else ""
        raise InvalidKubeconfig(f"getting credentials: exec: executable {command} not found{hint}") from None
    except OSError as error:
        raise InvalidKubeconfig(f"getting credentials: exec: {command}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InvalidKubeconfig(
            f"getting credentials: exec: {command} did not answer within {_EXEC_TIMEOUT_S} s"
        ) from None
    if done.returncode:
        raise InvalidKubeconfig(
            f"getting credentials: exec: executable {command} failed with exit code {done.returncode}"
        )
    try:
        status = json.loads(done.stdout)["status"]
        token, cert, key = (
            status.get("token"),
            status.get("clientCertificateData"),
            status.get("clientKeyData"),
        )
        expires = status.get("expirationTimestamp")
        return _Identity(
            _bearer(str(token), "getting credentials: exec: the token") if token else None,
            cert.encode() if cert else None,
            key.encode() if key else None,
            datetime.datetime.fromisoformat(expires).timestamp() if expires else math.inf,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidKubeconfig(
            f"getting credentials: exec: {command} did not print an ExecCredential with a status"
        ) from None


def _from_official_client(paths: list[Path], context: str) -> str:
    """Return the Authorization header for authentication methods that only the official client supports."""
    try:
        from kubernetes.client import Configuration
        from kubernetes.config import load_kube_config
        from kubernetes.config.config_exception import ConfigException
    except ModuleNotFoundError as error:
        raise InvalidKubeconfig(
            f'user of context "{context}": its auth-provider needs the Python package {error.name}: '
            "pip install kubernetes, or use an exec plugin or a token"
        ) from None

    configuration = Configuration()
    try:
        load_kube_config(
            config_file=os.pathsep.join(map(str, paths)), context=context, client_configuration=configuration
        )
    except (ConfigException, OSError, ValueError, KeyError) as error:
        raise InvalidKubeconfig(f'user of context "{context}": {error}') from None
    header = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    if not header:
        raise InvalidKubeconfig(
            f'user of context "{context}": this auth-provider is not supported; use an exec plugin or a token'
        )
    return str(header)


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Return what a pod has: the mounted token and authority, and the address in its environment.

    Parameters
    ----------
    environ
        Environment of the process.
    folder
        Where the kubelet mounts the ServiceAccount.

    Raises
    ------
    InvalidKubeconfig
        Something of it is missing; the message says what.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InvalidKubeconfig("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
    namespace, authority, token = folder / "namespace", folder / "ca.crt", folder / "token"
    try:
        said, trusted = token.read_text().strip(), authority.read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidKubeconfig(f"unable to read the ServiceAccount of the pod: {error}") from None
    if not said:
        raise InvalidKubeconfig(f"{token} is empty")
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        context="in-cluster",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        ca_pem=trusted,
        headers={"Authorization": f"Bearer {said}"},
    )
