"""The project's chart on a local cluster without kubelets: which objects are applied, and which become
processes.

helm renders the chart with the values of a local cluster (loopback ports, the webhook's address, an external
database). All objects but workloads are applied to the control plane: CRDs, RBAC, admission policies, webhook
configurations, ConfigMaps and the default queue. kwok would only simulate the Deployments, so each of their
containers becomes a process by these rules:

- command: the container's ``command``, by default ``fluxqueue``, which is the entry point of the images; then
  ``args``;
- environment: that of the container, with ``valueFrom`` resolved and ``$(NAME)`` expanded, and PATH, HOME and
  a UTF-8 locale;
- ServiceAccount: a kubeconfig with its token in ``KUBECONFIG``; none if ``automountServiceAccountToken`` is
  false and the container mounts no projected token;
- volumes: folders (`volumes`); mount paths at the start of arguments and variables are replaced by these
  folders, and a volume that is mounted at /tmp is ``TMPDIR``;
- ports: as rendered, on the loopback address; the values must name free ones;
- probes: as rendered; replicas, resources, security context and placement are ignored.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION
from fluxqueue.local.probes import Probe, read_probe
from fluxqueue.local.volumes import VolumeSource

__all__ = [
    "ChartContainer",
    "ChartError",
    "ChartPod",
    "Mount",
    "RenderedChart",
    "Variable",
    "chart_folder",
    "read_pod",
    "render",
]

_WORKLOADS = {
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "ChartPod",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
}
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class ChartError(RuntimeError):
    """The chart cannot be rendered, or one of its containers cannot be run as a process."""


@dataclass(frozen=True)
class RenderedChart:
    """The rendered objects of the chart.

    Attributes
    ----------
    definitions
        CustomResourceDefinitions, which are applied first.
    objects
        All other objects that are applied unchanged.
    late
        Hooks that are not workloads; they are applied last.
    deployments
        Deployments, whose containers become processes.
    """

    definitions: tuple[Mapping[str, Any], ...]
    objects: tuple[Mapping[str, Any], ...]
    late: tuple[Mapping[str, Any], ...]
    deployments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Variable:
    """An environment variable: a text, or a reference (``kind`` is ``secrets``, ``configmaps`` or
    ``field``).
    """

    name: str
    value: str = ""
    kind: str = ""
    source: str = ""
    key: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Mount:
    """A volume of the pod that is mounted at a path of a container."""

    volume: str
    path: str
    sub_path: str = ""


@dataclass(frozen=True)
class ChartContainer:
    """A container, with the fields that define its process;
    ``token`` is true if it has the token of its ServiceAccount.
    """

    name: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    variables: tuple[Variable, ...]
    mounts: tuple[Mount, ...]
    ports: Mapping[str, int]
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    token: bool = False


@dataclass(frozen=True)
class ChartPod:
    """The pod template of one Deployment.

    Attributes
    ----------
    volumes
        Volumes by name; None is an empty folder.
    service_account
        Name of the ServiceAccount.
    """

    deployment: str
    namespace: str
    labels: Mapping[str, str]
    service_account: str
    volumes: Mapping[str, VolumeSource | None]
    containers: tuple[ChartContainer, ...]
    grace_s: float


def chart_folder() -> Path:
    """Return the folder of the project's chart, which is package data (in a checkout, a symbolic link).

    Raises
    ------
    ChartError
        The installation is incomplete.
    """
    folder = Path(__file__).with_name("data") / "chart"
    if (folder / "Chart.yaml").is_file():
        return folder.resolve()
    raise ChartError(f"the chart is missing from the installation ({folder}): install fluxqueue again")


def render(
    helm: Path,
    release: str,
    namespace: str,
    values: Mapping[str, Any],
    chart: Path | None = None,
    kubernetes: str = KUBERNETES_VERSION,
) -> RenderedChart:
    """Render the chart as helm would install it.

    Parameters
    ----------
    helm
        Path of helm.
    release, namespace
        Name and namespace of the release.
    values
        Values that differ from the chart's defaults, nested.
    chart
        Folder of the chart; by default the project's own.
    kubernetes
        The version of the cluster.

    Raises
    ------
    ChartError
        With helm's message.
    """
    command: list[str | Path] = [
        helm,
        "template",
        release,
        chart or chart_folder(),
        "--namespace",
        namespace,
        "--kube-version",
        kubernetes,
        "--values",
        "-",
    ]
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise ChartError(f"helm cannot render the chart: {done.stderr.strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [document for document in yaml.load_all(done.stdout, Loader=loader) if document]
    kept = [document for document in documents if not _is_test(document)]
    return RenderedChart(
        definitions=tuple(document for document in kept if document["kind"] == "CustomResourceDefinition"),
        objects=tuple(document for document in kept if not _special(document) and not _is_hook(document)),
        late=tuple(document for document in kept if not _special(document) and _is_hook(document)),
        deployments=tuple(document for document in kept if document["kind"] == "Deployment"),
    )


def _special(document: Mapping[str, Any]) -> bool:
    return document["kind"] in _WORKLOADS or document["kind"] == "CustomResourceDefinition"


def _hooks(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("annotations") or {}).get("helm.sh/hook", ""))


def _is_hook(document: Mapping[str, Any]) -> bool:
    return bool(_hooks(document))


def _is_test(document: Mapping[str, Any]) -> bool:
    return "test" in _hooks(document).split(",")


def read_pod(deployment: Mapping[str, Any], namespace: str) -> ChartPod:
    """Read the pod template of a rendered Deployment.

    Raises
    ------
    ChartError
        It uses a type of volume or variable that a local cluster does not support.
    """
    name = deployment["metadata"]["name"]
    template = deployment["spec"]["template"]
    spec = template["spec"]
    tokens = {volume["name"] for volume in spec.get("volumes") or () if _is_token(volume)}
    mounted = spec.get("automountServiceAccountToken", True)
    return ChartPod(
        deployment=name,
        namespace=namespace,
        labels=dict(template["metadata"].get("labels") or {}),
        service_account=spec.get("serviceAccountName", "default"),
        volumes={volume["name"]: _volume(name, volume, namespace) for volume in spec.get("volumes") or ()},
        containers=tuple(_container(name, container, mounted, tokens) for container in spec["containers"]),
        grace_s=float(spec.get("terminationGracePeriodSeconds", 30)),
    )


def _is_token(volume: Mapping[str, Any]) -> bool:
    return any(
        "serviceAccountToken" in source for source in (volume.get("projected") or {}).get("sources") or ()
    )


def _volume(deployment: str, volume: Mapping[str, Any], namespace: str) -> VolumeSource | None:
    if "emptyDir" in volume or _is_token(volume):
        return None
    for field, kind, name_key in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
        if source := volume.get(field):
            return VolumeSource(
                kind=kind,
                namespace=namespace,
                name=source[name_key],
                items={item["key"]: item["path"] for item in source.get("items") or ()},
                optional=bool(source.get("optional", False)),
                mode=int(source.get("defaultMode", 0o644)),
            )
    kinds = ", ".join(sorted(set(volume) - {"name"}))
    raise ChartError(
        f"Deployment {deployment}: volume {volume['name']} is a {kinds}, "
        "which a local cluster does not support"
    )


def _container(
    deployment: str, container: Mapping[str, Any], mounted: bool, tokens: Set[str]
) -> ChartContainer:
    mounts = container.get("volumeMounts") or ()
    ports = {
        port.get("name", str(port["containerPort"])): int(port["containerPort"])
        for port in container.get("ports") or ()
    }
    return ChartContainer(
        name=container["name"],
        command=tuple(container.get("command") or ()),
        arguments=tuple(map(str, container.get("args") or ())),
        variables=tuple(_variables(deployment, container)),
        mounts=tuple(
            Mount(mount["name"], mount["mountPath"].rstrip("/"), mount.get("subPath", "")) for mount in mounts
        ),
        ports=ports,
        startup=read_probe(container.get("startupProbe"), ports),
        readiness=read_probe(container.get("readinessProbe"), ports),
        liveness=read_probe(container.get("livenessProbe"), ports),
        token=mounted or any(mount["name"] in tokens for mount in mounts),
    )


def _variables(deployment: str, container: Mapping[str, Any]) -> Iterator[Variable]:
    for entry in container.get("envFrom") or ():
        raise ChartError(
            f"Deployment {deployment}: a local cluster does not support envFrom {sorted(entry)}: "
            "name the variables"
        )
    for entry in container.get("env") or ():
        origin = entry.get("valueFrom")
        if origin is None:
            yield Variable(entry["name"], value=str(entry.get("value", "")))
        elif reference := origin.get("secretKeyRef") or origin.get("configMapKeyRef"):
            kind = "secrets" if "secretKeyRef" in origin else "configmaps"
            yield Variable(
                entry["name"],
                kind=kind,
                source=reference["name"],
                key=reference["key"],
                optional=bool(reference.get("optional")),
            )
        elif reference := origin.get("fieldRef"):
            yield Variable(entry["name"], kind="field", key=reference["fieldPath"])
        else:
            raise ChartError(
                f"Deployment {deployment}: variable {entry['name']} comes from {sorted(origin)}, which a "
                "local cluster does not support"
            )


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as the kubelet does; an unknown name is kept."""
    return _REFERENCE.sub(lambda match: environment.get(match[1], match[0]), text)


def relocate(text: str, folders: Sequence[tuple[str, Path]]) -> str:
    """Replace mount paths by local folders, at the start of a word or after ``=`` or ``:``."""
    if not folders:
        return text
    by_path = dict(folders)
    paths = "|".join(re.escape(path) for path in sorted(by_path, key=len, reverse=True))
    return re.sub(rf"(^|[=:\s])({paths})(?=/|$|[\s:])", lambda match: f"{match[1]}{by_path[match[2]]}", text)
