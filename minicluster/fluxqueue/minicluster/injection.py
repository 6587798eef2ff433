"""Flux put into a pod at admission: one path for the pods of MiniClusters and of annotated Jobs.

All by reference, because a pod's volumes and environment are fixed when it is created and its node is not known then: the ConfigMap with
scripts and broker configuration, which is written when the allocation is known, and the Secret with the certificate. A pod whose ConfigMap
is not there yet waits for it at its node.

What is added: an init container that copies Flux beside the application where the image has none, the volumes, a script in front of the
command (whose words stay as they are), a readiness probe that asks the broker, native sidecars started with Flux on their path, and the
REST service beside the leader. Everything else in the pod is as it was, fields that this code has never heard of included: it works on
the decoded JSON, and `inject_patch` answers with the difference only.
"""

from __future__ import annotations

import copy
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.jsonpatches import Operation, difference
from fluxqueue.minicluster.marks import InvalidMarks, Marks
from fluxqueue.minicluster.scripts import FOLDER, SECRET_FOLDER

__all__ = ["REST_CONTAINER", "REST_TOKEN_FILE", "host_problems", "index_of", "inject", "inject_patch"]

REST_CONTAINER = "flux-rest"
REST_TOKEN_FILE = "/flux_token/token"  # noqa: S105 where it is mounted

_FILES, _CURVE, _VIEW, _SOFTWARE, _TOKEN = "flux-files", "flux-curve", "flux-view", "flux-software", "flux-token"
_SOFTWARE_PATH = "/opt/software"
_SOFTWARE_TARGET = "/flux_software"
_RUN = ["/bin/bash", f"{FOLDER}/run.sh"]
_START = ["/bin/bash", f"{FOLDER}/start.sh"]
_ONLY_READ, _EXECUTABLE = 0o444, 0o555

Spec = dict[str, Any]


def index_of(annotations: dict[str, str] | None) -> int | None:
    """The completion index of a pod of an Indexed Job; None of a template."""
    text = (annotations or {}).get(names.COMPLETION_INDEX_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() else None


def host_problems(pod_spec: Spec, path: str) -> list[str]:
    """What of a pod gives its broker another host name than the one that it is known by, which ends it at once.

    Parameters
    ----------
    pod_spec
        Decoded JSON.
    path
        Of the pod spec, for the sentences.

    Returns
    -------
    list of str
        A sentence for each field.
    """
    problems = []
    if pod_spec.get("hostNetwork"):
        problems.append(
            f"{path}.hostNetwork gives each pod the host name of its node, and a broker finds its rank by the pod's own: leave it out"
        )
    if pod_spec.get("setHostnameAsFQDN"):
        problems.append(f"{path}.setHostnameAsFQDN makes host names long, and a broker finds its rank by the short one: leave it out")
    return problems


def inject(pod_spec: Spec, marks: Marks, index: int | None = None) -> Spec:
    """Put Flux into a pod.

    Parameters
    ----------
    pod_spec
        Decoded JSON; not changed.
    marks
        As `fluxqueue.minicluster.marks.marks_of_pod` reads them.
    index
        Of the pod. None for a template: then whatever any of its pods may get is in it, which is what a jobspec must count.

    Returns
    -------
    dict
        A new pod spec. Applied to its own result it changes nothing.

    Raises
    ------
    InvalidMarks
        There is no such container, its command is the image's own, which nobody can know here, or its host name would not be the pod's.
    """
    if problems := host_problems(pod_spec, "the pod's spec"):
        raise InvalidMarks(f"it cannot be a Flux cluster: {problems[0]}")
    spec = copy.deepcopy(pod_spec)
    runner = _container(spec, "containers", marks.runner)
    if runner is None:
        raise InvalidMarks(f"the pod has no container {marks.runner!r} to run Flux in")
    _volumes(spec, marks)
    _wrap_runner(runner, marks)
    for name in marks.sidecars:
        sidecar = _container(spec, "initContainers", name) or _container(spec, "containers", name)
        if sidecar is not None:
            _wrap_sidecar(sidecar, marks, wrap=name in marks.wrapped)
    if marks.view is not None:
        _first(spec, _view_container(marks))
    if marks.rest is not None and index in (None, 0):
        _last(spec, _rest_container(marks, spec, runner))
    spec.setdefault("subdomain", marks.service)
    return spec


def inject_patch(pod_spec: Spec, marks: Marks, index: int | None = None, base: str = "/spec") -> list[Operation]:
    """`inject` as a JSON Patch of what it changes.

    Parameters
    ----------
    pod_spec, marks, index
        As for `inject`.
    base
        Path of the pod spec in the object that is patched.
    """
    return difference(base, pod_spec, inject(pod_spec, marks, index))


def _volumes(spec: Spec, marks: Marks) -> None:
    volumes = [
        {"name": _FILES, "configMap": {"name": marks.files, "defaultMode": _EXECUTABLE}},
        # Readable for whatever user the broker is; only its container has it, and run.sh makes the copy that Flux accepts.
        {"name": _CURVE, "secret": {"secretName": marks.certificate, "defaultMode": _ONLY_READ}},
        {"name": _VIEW, "emptyDir": {}},
    ]
    if marks.view is not None:
        volumes.append({"name": _SOFTWARE, "emptyDir": {}})
    if marks.rest is not None:
        volumes.append({"name": _TOKEN, "secret": {"secretName": marks.rest.token, "defaultMode": _ONLY_READ}})
    present = spec.setdefault("volumes", [])
    standing = {volume["name"] for volume in present}
    present += [volume for volume in volumes if volume["name"] not in standing]


def _wrap_runner(container: Spec, marks: Marks) -> None:
    command = container.get("command") or []
    if command[:2] != _RUN:
        if not command and (marks.needs_command or container.get("args")):
            raise InvalidMarks(f"container {marks.runner!r} has no command: what its image would start is not known here; say the command")
        container["command"] = [*_RUN, *command, *container.pop("args", [])]
    _mount(container, {"name": _CURVE, "mountPath": SECRET_FOLDER, "readOnly": True})
    _mount_flux(container, marks)
    container.setdefault(
        "readinessProbe",
        {
            "exec": {"command": ["/bin/bash", f"{FOLDER}/ready.sh"]},
            "initialDelaySeconds": 1,
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
    )


def _wrap_sidecar(container: Spec, marks: Marks, *, wrap: bool) -> None:
    if wrap and (container.get("command") or [])[:2] != _START:
        container["command"] = [*_START, container["name"]]
        container.pop("args", None)
    _mount_flux(container, marks)


def _mount_flux(container: Spec, marks: Marks) -> None:
    _mount(container, {"name": _FILES, "mountPath": FOLDER, "readOnly": True})
    _mount(container, {"name": _VIEW, "mountPath": marks.mount_path})
    if marks.view is not None and marks.flux_from_view:
        _mount(container, {"name": _SOFTWARE, "mountPath": _SOFTWARE_PATH})


def _view_container(marks: Marks) -> Spec:
    assert marks.view is not None
    view = marks.view
    container: Spec = {
        "name": view.name,
        "image": view.image,
        "imagePullPolicy": "Always" if view.always_pull else "IfNotPresent",
        "command": ["/bin/sh", f"{FOLDER}/flux-init.sh", marks.mount_path, _SOFTWARE_TARGET],
        "volumeMounts": [
            {"name": _FILES, "mountPath": FOLDER, "readOnly": True},
            {"name": _VIEW, "mountPath": marks.mount_path},
            {"name": _SOFTWARE, "mountPath": _SOFTWARE_TARGET},
        ],
    }
    if view.working_dir:
        container["workingDir"] = view.working_dir
    if view.resources:
        container["resources"] = view.resources
    if view.security_context:
        container["securityContext"] = view.security_context
    return container


def _rest_container(marks: Marks, spec: Spec, runner: Spec) -> Spec:
    """The REST service: as the broker's user where runner or pod say one, else as root, whom the broker takes for its owner."""
    assert marks.rest is not None
    rest = marks.rest
    users = [(said.get("securityContext") or {}).get("runAsUser") for said in (runner, spec)]
    user = next((user for user in users if user is not None), 0)
    size = {"cpu": "100m", "memory": "128Mi"}
    return {
        "name": REST_CONTAINER,
        "image": rest.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": ["fluxqueue", "rest"],
        "args": [
            *("--port", str(rest.port), "--token-file", REST_TOKEN_FILE, "--settings", f"{FOLDER}/settings.sh"),
            *("--environment", f"{marks.mount_path}/config/environment"),
        ],
        "env": [
            {"name": "FLUX_URI", "value": f"local://{marks.mount_path}/config/run/flux/local"},
            {"name": "FLUX_VIEW", "value": f"{marks.mount_path}/view"},
            {"name": "FLUX_SHELL_RC_PATH", "value": FOLDER},
        ],
        "ports": [{"name": "flux-rest", "containerPort": rest.port}],
        "resources": {"requests": dict(size), "limits": dict(size)},
        "securityContext": {"runAsUser": user, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": _FILES, "mountPath": FOLDER, "readOnly": True},
            {"name": _VIEW, "mountPath": marks.mount_path},
            {"name": _SOFTWARE, "mountPath": _SOFTWARE_PATH},
            {"name": _TOKEN, "mountPath": REST_TOKEN_FILE.rpartition("/")[0], "readOnly": True},
        ],
    }


def _container(spec: Spec, field: str, name: str) -> Spec | None:
    return next((each for each in spec.get(field) or [] if each.get("name") == name), None)


def _mount(container: Spec, mount: Spec) -> None:
    mounts = container.setdefault("volumeMounts", [])
    if all(each.get("mountPath") != mount["mountPath"] for each in mounts):
        mounts.append(mount)


def _first(spec: Spec, container: Spec) -> None:
    if _container(spec, "initContainers", container["name"]) is None:
        spec["initContainers"] = [container, *(spec.get("initContainers") or [])]


def _last(spec: Spec, container: Spec) -> None:
    if _container(spec, "initContainers", container["name"]) is None:
        spec["initContainers"] = [*(spec.get("initContainers") or []), container]
