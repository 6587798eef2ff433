"""Pods of a MiniCluster as its spec describes them, before the injection of Flux.

They follow the Flux Operator field by field, without its traps: a container has only the volumes that it
requested, the volume of a ConfigMap is named like its mount, sidecars are native ones (so that an index ends
with its broker), the services pod gets the same fields as the other pods, and ``podTemplate`` is merged into
the result.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.miniclusters import ContainerVolume, MiniClusterContainer, MiniClusterPod, MiniClusterSpec
from fluxqueue.minicluster.commands import parse_command
from fluxqueue.minicluster.injection_settings import InjectionSettings
from fluxqueue.minicluster.naming import Identity
from fluxqueue.minicluster.overlay import merge_template
from fluxqueue.minicluster.scripts import grace_of

__all__ = [
    "LOGS_VOLUME",
    "SELECTOR_LABEL",
    "STATE_VOLUME",
    "cluster_labels",
    "has_guests",
    "pod_template",
    "services_pod",
]

SELECTOR_LABEL = "hpa-selector"
"""Label with the MiniCluster's name; the selector of the scale subresource."""

STATE_VOLUME = "flux-state"
LOGS_VOLUME = "flux-logs"
_ROOT = 0
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 where an emptyDir of the operator is mounted

Json = dict[str, Any]


def cluster_labels(identity: Identity) -> dict[str, str]:
    """Return the labels of every pod of a cluster."""
    return {
        "app": "flux-operator",
        "app.kubernetes.io/name": identity.name,
        "namespace": identity.namespace,
        SELECTOR_LABEL: identity.name,
    }


def pod_template(identity: Identity, spec: MiniClusterSpec, settings: InjectionSettings) -> Json:
    """Return the template of the brokers' pods, gated and with the settings of the injection.

    Returns
    -------
    dict
        ``metadata`` and ``spec``.
    """
    runner_index = spec.runner_index or 0
    runner = spec.containers[runner_index]
    sidecars = [each for place, each in enumerate(spec.containers) if place != runner_index]
    pod = _pod_fields(spec.pod, [*spec.containers], spec.flux.container.image_pull_secret)
    pod |= {
        "schedulingGates": [{"name": names.GATE}],
        "restartPolicy": "Never",
        "subdomain": identity.service,
        "setHostnameAsFQDN": False,
        "containers": [_container(runner, settings.runner)],
    }
    if sidecars:
        pod["initContainers"] = [
            {**_container(each, each.name), "restartPolicy": "Always"} for each in sidecars
        ]
    if volumes := _volumes(spec.containers):
        pod["volumes"] = volumes
    if spec.share_process_namespace:
        pod["shareProcessNamespace"] = True
    if spec.state is not None:
        _add_state(pod, spec.state.volume)
    if spec.state is not None or spec.archive.path:
        pod["terminationGracePeriodSeconds"] = grace_of(spec)
    template: Json = {
        "metadata": {
            "labels": {**cluster_labels(identity), **_queue_label(spec), **(spec.pod.labels or {})},
            "annotations": {**(spec.pod.annotations or {}), names.MINICLUSTER_ANNOTATION: "true"},
        },
        "spec": pod,
    }
    if spec.pod_template:
        template = merge_template(template, spec.pod_template)
    _add_logs(template["spec"], runner, settings.runner)
    template["metadata"]["annotations"][names.INJECTION_ANNOTATION] = settings.annotation
    return template


def has_guests(pod: Json, settings: InjectionSettings) -> bool:
    """Return True if a sidecar that uses Flux may run as a user other than the broker's and root.

    Parameters
    ----------
    pod
        Spec of the brokers' template, with ``podTemplate`` merged into it.
    settings
        The containers that use Flux.
    """
    containers = {
        each["name"]: each for field in ("containers", "initContainers") for each in pod.get(field) or []
    }
    owner = _user(pod, containers[settings.runner])
    return any(
        _user(pod, containers[name]) not in (owner, _ROOT) for name in settings.sidecars if name in containers
    )


def _user(pod: Json, container: Json) -> int | str:
    """Return the user of a container.
    If no security context sets it, the image does, so the image stands for its user.
    """
    for source in (container, pod):
        user = (source.get("securityContext") or {}).get("runAsUser")
        if user is not None:
            return int(user)
    return str(container.get("image", ""))


def services_pod(identity: Identity, spec: MiniClusterSpec, job_uid: str = "") -> Json | None:
    """Return the pod of ``spec.services``. It is gated, queued as one more pod of the brokers' Job, and
    released with them.

    Its label ``job-name`` selects it for the headless Service. Its containers run their images' entrypoints
    unless a command is set.

    Parameters
    ----------
    identity
        Whose pod.
    spec
        A valid spec.
    job_uid
        Uid of the brokers' Job, once it exists.
    """
    if not spec.services:
        return None
    pod = _pod_fields(spec.pod, spec.services, "")
    pod |= {
        "schedulingGates": [{"name": names.GATE}],
        "restartPolicy": spec.pod.restart_policy,
        "hostname": identity.services_pod,
        "subdomain": identity.service,
        "containers": [_with_command(_container(each, each.name), each.command) for each in spec.services],
    }
    if volumes := _volumes(spec.services):
        pod["volumes"] = volumes
    metadata = identity.metadata(
        identity.services_pod, {**cluster_labels(identity), **_queue_label(spec), **(spec.pod.labels or {})}
    )
    metadata["labels"] |= {
        "job-name": identity.name,
        **({names.SERVICES_OF_LABEL: job_uid} if job_uid else {}),
    }
    if spec.pod.annotations:
        metadata["annotations"] = dict(spec.pod.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _queue_label(spec: MiniClusterSpec) -> dict[str, str]:
    return {names.MANAGED_LABEL: "true", **({names.QUEUE_LABEL: spec.queue} if spec.queue else {})}


def _pod_fields(pod: MiniClusterPod, containers: list[MiniClusterContainer], pull_secret: str) -> Json:
    fields: Json = {"automountServiceAccountToken": pod.automount_service_account_token}
    for key, value in (
        ("serviceAccountName", pod.service_account_name),
        ("runtimeClassName", pod.runtime_class_name),
        ("dnsPolicy", pod.dns_policy),
        ("schedulerName", pod.scheduler_name),
        ("nodeSelector", pod.node_selector),
        ("hostIPC", pod.host_ipc),
        ("hostPID", pod.host_pid),
        ("securityContext", pod.security_context),
        (
            "imagePullSecrets",
            [
                {"name": name}
                for name in dict.fromkeys([*(each.image_pull_secret for each in containers), pull_secret])
                if name
            ],
        ),
        (
            "tolerations",
            [
                _non_empty(key=t.key, operator=t.operator, value=t.value, effect=t.effect)
                for t in pod.tolerations or ()
            ],
        ),
    ):
        if value:
            fields[key] = value
    if pod.node_affinity:
        terms = [
            {"key": key, "operator": "In", "values": list(values)}
            for key, values in pod.node_affinity.items()
        ]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        fields["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return fields


def _container(container: MiniClusterContainer, name: str) -> Json:
    built: Json = {
        "name": name,
        "image": container.image,
        "imagePullPolicy": "Always"
        if container.pull_always
        else container.image_pull_policy or "IfNotPresent",
    }
    environment: list[Json] = [
        {"name": key, "value": str(value)} for key, value in (container.environment or {}).items()
    ]
    environment += [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
        for key, secret in (container.secrets or {}).items()
    ]
    hooks = _non_empty(
        postStart=_hook(container.life_cycle.post_start_exec),
        preStop=_hook(container.life_cycle.pre_stop_exec),
    )
    for key, value in (
        ("workingDir", container.working_dir),
        ("env", environment),
        ("ports", [{"containerPort": port, "protocol": "TCP"} for port in container.ports or ()]),
        ("resources", container.resources),
        ("securityContext", container.security_context),
        ("lifecycle", hooks),
        ("volumeMounts", [_mount(key, volume) for key, volume in (container.volumes or {}).items()]),
    ):
        if value:
            built[key] = value
    return built


def _with_command(built: Json, text: str) -> Json:
    command = parse_command(text)
    if command:
        built["command"] = list(command.words) or ["/bin/sh", "-c", command.text]
    return built


def _mount(name: str, volume: ContainerVolume) -> Json:
    path = _SHARED_MEMORY if _is_empty_dir(volume) else volume.path
    return _non_empty(name=name, mountPath=path, readOnly=volume.read_only)


def _is_empty_dir(volume: ContainerVolume) -> bool:
    return volume.empty_dir and not volume.csi_driver and not volume.secret_name


def _volumes(containers: list[MiniClusterContainer]) -> list[Json]:
    volumes: dict[str, Json] = {}
    for container in containers:
        for name, volume in (container.volumes or {}).items():
            volumes.setdefault(name, {"name": name, **_source(volume)})
    return list(volumes.values())


def _source(volume: ContainerVolume) -> Json:
    if volume.csi_driver:
        return {"csi": _non_empty(driver=volume.csi_driver, volumeAttributes=volume.csi_driver_attributes)}
    if volume.secret_name:
        return {"secret": {"secretName": volume.secret_name}}
    if volume.empty_dir or volume.only_path:
        medium = "Memory" if volume.empty_dir_medium.lower() == "memory" else volume.empty_dir_medium
        return {"emptyDir": _non_empty(medium=medium, sizeLimit=volume.empty_dir_size_limit)}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.config_map_name:
        items = [{"key": key, "path": path} for key, path in (volume.items or {}).items()]
        return {"configMap": _non_empty(name=volume.config_map_name, items=items)}
    return {"persistentVolumeClaim": _non_empty(claimName=volume.claim_name, readOnly=volume.read_only)}


def _add_state(pod: Json, volume: ContainerVolume) -> None:
    pod.setdefault("volumes", []).append({"name": STATE_VOLUME, **_source(volume)})
    pod["containers"][0].setdefault("volumeMounts", []).append(
        {"name": STATE_VOLUME, "mountPath": volume.path}
    )


def _add_logs(pod: Json, runner: MiniClusterContainer, name: str) -> None:
    """Add an empty directory for the output of a batch, if its container cannot write to its root file system
    and mounts nothing there.
    """
    container = next(each for each in pod["containers"] if each["name"] == name)
    read_only = (container.get("securityContext") or {}).get("readOnlyRootFilesystem")
    folder = PurePosixPath(runner.logs)
    mounted = [mount["mountPath"] for mount in container.get("volumeMounts") or ()]
    if (
        not runner.batch
        or not read_only
        or not folder.is_absolute()
        or any(folder.is_relative_to(path) for path in mounted)
    ):
        return
    volumes = pod.setdefault("volumes", [])
    if all(volume["name"] != LOGS_VOLUME for volume in volumes):
        volumes.append({"name": LOGS_VOLUME, "emptyDir": {}})
    container.setdefault("volumeMounts", []).append({"name": LOGS_VOLUME, "mountPath": runner.logs})


def _hook(executable: str) -> Json | None:
    return {"exec": {"command": [executable]}} if executable else None


def _non_empty(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value}
