"""The project's own chart on a plane without kubelets: what is installed, and what becomes a process.

The chart is rendered by helm with the values a local plane needs (loopback ports, the webhook's address, a database from outside).
Everything but workloads is then applied to the control plane: CRDs, RBAC, admission policies and webhook configuration, ConfigMaps,
the default queue. kwok would only pretend to run the Deployments, so each of their containers becomes a process by these rules:

- command: the container's ``command`` or, as the images have it for entry point, ``fluxqueue``; then ``args``;
- environment: the container's alone, with ``valueFrom`` resolved and ``$(NAME)`` expanded, on top of PATH, HOME and a UTF-8 locale;
- ServiceAccount: a kubeconfig with its token in ``KUBECONFIG``; none where ``automountServiceAccountToken`` is false;
- volumes: folders, see `volumes`; where an argument or variable begins with a mount path, the folder is put in its place, and a volume
  mounted at /tmp is ``TMPDIR``;
- ports: as rendered, on loopback; give free ones as values;
- probes: as rendered; replicas, resources, security context and placement have no meaning here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.local.binaries import KUBERNETES_VERSION
from fluxqueue.local.probes import Probe, read_probe
from fluxqueue.local.volumes import VolumeSource

__all__ = ["ChartError", "Container", "Mount", "Pod", "RenderedChart", "Variable", "chart_folder", "read_pod", "render"]

_WORKLOADS = {
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "Pod",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
}
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class ChartError(RuntimeError):
    """The chart cannot be rendered, or a container of it not be turned into a process."""


@dataclass(frozen=True)
class RenderedChart:
    """What helm made of the chart.

    Attributes
    ----------
    definitions
        CustomResourceDefinitions, to be applied first.
    objects
        What else is applied as it is.
    late
        Hooks that are no workloads: applied when the rest is there.
    deployments
        What becomes processes.
    """

    definitions: tuple[Mapping[str, Any], ...]
    objects: tuple[Mapping[str, Any], ...]
    late: tuple[Mapping[str, Any], ...]
    deployments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Variable:
    """An environment variable: a text, or where it comes from (``kind`` is ``secrets``, ``configmaps`` or ``field``)."""

    name: str
    value: str = ""
    kind: str = ""
    source: str = ""
    key: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Mount:
    """A volume of the pod seen at a path of a container."""

    volume: str
    path: str
    sub_path: str = ""


@dataclass(frozen=True)
class Container:
    """A container, as far as it matters to a process."""

    name: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    variables: tuple[Variable, ...]
    mounts: tuple[Mount, ...]
    ports: Mapping[str, int]
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None


@dataclass(frozen=True)
class Pod:
    """The pod template of one Deployment.

    Attributes
    ----------
    volumes
        By name; ``None`` is an empty folder.
    service_account
        ``None`` where no token is mounted.
    """

    deployment: str
    namespace: str
    labels: Mapping[str, str]
    service_account: str | None
    volumes: Mapping[str, VolumeSource | None]
    containers: tuple[Container, ...]
    grace_s: float


def chart_folder() -> Path:
    """The project's chart, which is part of the package's data (in a checkout, a link to it).

    Raises
    ------
    ChartError
        The installation is incomplete.
    """
    folder = Path(__file__).with_name("data") / "chart"
    if (folder / "Chart.yaml").is_file():
        return folder.resolve()
    raise ChartError(f"the chart is missing from the installation ({folder}): install fluxqueue again")


def render(helm: Path, release: str, namespace: str, values: Mapping[str, Any], chart: Path | None = None) -> RenderedChart:
    """Render the chart as helm would install it.

    Parameters
    ----------
    helm
        The program.
    release, namespace
        Of the installation.
    values
        What differs from the chart's defaults, nested.
    chart
        The project's own if not given.

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
        KUBERNETES_VERSION,
        "--values",
        "-",
    ]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=False)
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


def read_pod(deployment: Mapping[str, Any], namespace: str) -> Pod:
    """Read the pod template of a rendered Deployment.

    Raises
    ------
    ChartError
        It uses a kind of volume or variable that has no counterpart here.
    """
    name = deployment["metadata"]["name"]
    template = deployment["spec"]["template"]
    spec = template["spec"]
    return Pod(
        deployment=name,
        namespace=namespace,
        labels=dict(template["metadata"].get("labels") or {}),
        service_account=spec.get("serviceAccountName", "default") if spec.get("automountServiceAccountToken", True) else None,
        volumes={volume["name"]: _volume(name, volume, namespace) for volume in spec.get("volumes") or ()},
        containers=tuple(_container(name, container) for container in spec["containers"]),
        grace_s=float(spec.get("terminationGracePeriodSeconds", 30)),
    )


def _volume(deployment: str, volume: Mapping[str, Any], namespace: str) -> VolumeSource | None:
    if "emptyDir" in volume:
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
    raise ChartError(f"Deployment {deployment}: volume {volume['name']} is a {kinds}, which a local plane does not know")


def _container(deployment: str, container: Mapping[str, Any]) -> Container:
    ports = {port.get("name", str(port["containerPort"])): int(port["containerPort"]) for port in container.get("ports") or ()}
    return Container(
        name=container["name"],
        command=tuple(container.get("command") or ()),
        arguments=tuple(map(str, container.get("args") or ())),
        variables=tuple(_variables(deployment, container)),
        mounts=tuple(
            Mount(mount["name"], mount["mountPath"].rstrip("/"), mount.get("subPath", "")) for mount in container.get("volumeMounts") or ()
        ),
        ports=ports,
        startup=read_probe(container.get("startupProbe"), ports),
        readiness=read_probe(container.get("readinessProbe"), ports),
        liveness=read_probe(container.get("livenessProbe"), ports),
    )


def _variables(deployment: str, container: Mapping[str, Any]) -> Iterator[Variable]:
    for entry in container.get("envFrom") or ():
        raise ChartError(f"Deployment {deployment}: envFrom {sorted(entry)} is not known to a local plane: name the variables")
    for entry in container.get("env") or ():
        origin = entry.get("valueFrom")
        if origin is None:
            yield Variable(entry["name"], value=str(entry.get("value", "")))
        elif reference := origin.get("secretKeyRef") or origin.get("configMapKeyRef"):
            kind = "secrets" if "secretKeyRef" in origin else "configmaps"
            yield Variable(
                entry["name"], kind=kind, source=reference["name"], key=reference["key"], optional=bool(reference.get("optional"))
            )
        elif reference := origin.get("fieldRef"):
            yield Variable(entry["name"], kind="field", key=reference["fieldPath"])
        else:
            raise ChartError(
                f"Deployment {deployment}: variable {entry['name']} comes from {sorted(origin)}, which a local plane does not know"
            )


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as the kubelet does; an unknown name stays as it is."""
    return _REFERENCE.sub(lambda match: environment.get(match[1], match[0]), text)


def relocate(text: str, folders: Sequence[tuple[str, Path]]) -> str:
    """Put our folders in the place of mount paths, at the beginning of a word or after ``=`` or ``:``."""
    if not folders:
        return text
    by_path = dict(folders)
    paths = "|".join(re.escape(path) for path in sorted(by_path, key=len, reverse=True))
    return re.sub(rf"(^|[=:\s])({paths})(?=/|$|[\s:])", lambda match: f"{match[1]}{by_path[match[2]]}", text)
