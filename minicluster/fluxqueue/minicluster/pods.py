"""Pods of a MiniCluster as its spec describes them, before Flux is put into them.

Field by field what the Flux Operator makes of the spec, with its traps left out: a container has the volumes it asked for and no others, a
ConfigMap's volume is named as its mount, sidecars are native ones (so that an index ends when its broker does), the services pod gets what
the other pods get, and ``podTemplate`` is laid over the whole.
"""

from __future__ import annotations

from typing import Any

from fluxqueue.api import names
from fluxqueue.api.miniclusters import ContainerVolume, MiniClusterContainer, MiniClusterPod, MiniClusterSpec
from fluxqueue.minicluster.commands import parse_command
from fluxqueue.minicluster.marks import Marks
from fluxqueue.minicluster.naming import Identity
from fluxqueue.minicluster.overlay import lay_over
from fluxqueue.minicluster.scripts import grace_of

__all__ = ["SELECTOR_LABEL", "STATE_VOLUME", "cluster_labels", "has_guests", "pod_template", "services_pod"]

SELECTOR_LABEL = "hpa-selector"
"""Its value is the MiniCluster's name: the selector of the scale subresource."""

STATE_VOLUME = "flux-state"
_ROOT = 0
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 where an emptyDir of the operator is mounted

Json = dict[str, Any]


def cluster_labels(identity: Identity) -> dict[str, str]:
    """Labels of every pod of a cluster."""
    return {
        "app": "flux-operator",
        "app.kubernetes.io/name": identity.name,
        "namespace": identity.namespace,
        SELECTOR_LABEL: identity.name,
    }


def pod_template(identity: Identity, spec: MiniClusterSpec, marks: Marks) -> Json:
    """The template of the brokers' pods: gated, and marked for injection.

    Parameters
    ----------
    identity
        Whose pods.
    spec
        Valid.
    marks
        What admission injects; carried as an annotation.

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
        "containers": [_container(runner, marks.runner)],
    }
    if sidecars:
        pod["initContainers"] = [{**_container(each, each.name), "restartPolicy": "Always"} for each in sidecars]
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
        template = lay_over(template, spec.pod_template)
    template["metadata"]["annotations"][names.INJECTION_ANNOTATION] = marks.annotation
    return template


def has_guests(pod: Json, marks: Marks) -> bool:
    """Whether the broker must expect other users: a sidecar that finds Flux and may be neither the broker's user nor root.

    Parameters
    ----------
    pod
        Spec of the brokers' template, with ``podTemplate`` in it.
    marks
        Which containers find Flux.
    """
    containers = {each["name"]: each for field in ("containers", "initContainers") for each in pod.get(field) or []}
    owner = _user(pod, containers[marks.runner])
    return any(_user(pod, containers[name]) not in (owner, _ROOT) for name in marks.sidecars if name in containers)


def _user(pod: Json, container: Json) -> int | str:
    """Who a container runs as; where nobody says, that is the image's to know, so the image stands for its user."""
    for said in (container, pod):
        user = (said.get("securityContext") or {}).get("runAsUser")
        if user is not None:
            return int(user)
    return str(container.get("image", ""))


def services_pod(identity: Identity, spec: MiniClusterSpec, job_uid: str = "") -> Json | None:
    """The pod of ``spec.services``, gated: it is queued as one more pod of the brokers' Job, and let go with them.

    Its label ``job-name`` puts it under the headless Service; its containers run what their images run, unless a command is said.

    Parameters
    ----------
    identity
        Whose pod.
    spec
        Valid.
    job_uid
        Of the brokers' Job, once that is made.
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
    metadata = identity.metadata(identity.services_pod, {**cluster_labels(identity), **_queue_label(spec), **(spec.pod.labels or {})})
    metadata["labels"] |= {"job-name": identity.name, **({names.SERVICES_OF_LABEL: job_uid} if job_uid else {})}
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
            [{"name": name} for name in dict.fromkeys([*(each.image_pull_secret for each in containers), pull_secret]) if name],
        ),
        ("tolerations", [_said(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in pod.tolerations or ()]),
    ):
        if value:
            fields[key] = value
    if pod.node_affinity:
        terms = [{"key": key, "operator": "In", "values": list(values)} for key, values in pod.node_affinity.items()]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        fields["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return fields


def _container(container: MiniClusterContainer, name: str) -> Json:
    built: Json = {
        "name": name,
        "image": container.image,
        "imagePullPolicy": "Always" if container.pull_always else container.image_pull_policy or "IfNotPresent",
    }
    environment: list[Json] = [{"name": key, "value": str(value)} for key, value in (container.environment or {}).items()]
    environment += [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
        for key, secret in (container.secrets or {}).items()
    ]
    hooks = _said(
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
    return _said(name=name, mountPath=path, readOnly=volume.read_only)


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
        return {"csi": _said(driver=volume.csi_driver, volumeAttributes=volume.csi_driver_attributes)}
    if volume.secret_name:
        return {"secret": {"secretName": volume.secret_name}}
    if volume.empty_dir:
        medium = "Memory" if volume.empty_dir_medium.lower() == "memory" else volume.empty_dir_medium
        return {"emptyDir": _said(medium=medium, sizeLimit=volume.empty_dir_size_limit)}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.config_map_name:
        items = [{"key": key, "path": path} for key, path in (volume.items or {}).items()]
        return {"configMap": _said(name=volume.config_map_name, items=items)}
    return {"persistentVolumeClaim": _said(claimName=volume.claim_name, readOnly=volume.read_only)}


def _add_state(pod: Json, volume: ContainerVolume) -> None:
    pod.setdefault("volumes", []).append({"name": STATE_VOLUME, **_source(volume)})
    pod["containers"][0].setdefault("volumeMounts", []).append({"name": STATE_VOLUME, "mountPath": volume.path})


def _hook(executable: str) -> Json | None:
    return {"exec": {"command": [executable]}} if executable else None


def _said(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value}
