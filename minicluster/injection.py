"""Injection of Flux into a pod at admission: one path for the pods of MiniClusters and of annotated Jobs.

A pod's volumes and environment are fixed when it is created, and its node is not known then. So everything is
injected by reference: the ConfigMap with scripts and broker configuration, which is written once the
allocation is known, and the Secret with the certificate. A pod whose ConfigMap does not exist yet waits for
it on its node.

The injection adds an init container that copies Flux next to the application if the image has none, the
volumes, a script in front of the command (whose words are unchanged), a readiness probe of the broker, native
sidecars with Flux on their path, and the REST service next to the leader. Everything else in the pod stays,
unknown fields included, because the code works on the decoded JSON and `inject_patch` returns only the
difference.
"""

from __future__ import annotations

import copy
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.jsonpatches import Operation, difference
from fluxqueue.minicluster.injection_settings import InjectionSettings, InvalidInjection
from fluxqueue.minicluster.scripts import FOLDER, SECRET_FOLDER

__all__ = ["REST_CONTAINER", "REST_TOKEN_FILE", "host_name_problems", "index_of", "inject", "inject_patch"]

REST_CONTAINER = "flux-rest"
REST_TOKEN_FILE = "/flux_token/token"  # noqa: S105 where it is mounted

_FILES, _CURVE, _VIEW, _SOFTWARE, _TOKEN = (
    "flux-files",
    "flux-curve",
    "flux-view",
    "flux-software",
    "flux-token",
)
_SOFTWARE_PATH = "/opt/software"
_SOFTWARE_TARGET = "/flux_software"
_RUN = ["/bin/bash", f"{FOLDER}/run.sh"]
_START = ["/bin/bash", f"{FOLDER}/start.sh"]
_ONLY_READ, _EXECUTABLE = 0o444, 0o555

Spec = dict[str, Any]


def index_of(annotations: dict[str, str] | None) -> int | None:
    """Return the completion index of a pod of an Indexed Job; None for a template."""
    text = (annotations or {}).get(names.COMPLETION_INDEX_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() else None


def host_name_problems(pod_spec: Spec, path: str) -> list[str]:
    """Return which fields give a broker another host name than the configured one, which would end it at
    once.
    """
    problems = []
    if pod_spec.get("hostNetwork"):
        problems.append(
            f"{path}.hostNetwork gives each pod the host name of its node, "
            "and a broker finds its rank by the pod's own: leave it out"
        )
    if pod_spec.get("setHostnameAsFQDN"):
        problems.append(
            f"{path}.setHostnameAsFQDN makes host names long, "
            "and a broker finds its rank by the short one: leave it out"
        )
    return problems


def inject(pod_spec: Spec, settings: InjectionSettings, index: int | None = None) -> Spec:
    """Return a pod spec with Flux.

    Parameters
    ----------
    pod_spec
        The pod spec as decoded JSON; not changed.
    settings
        As `fluxqueue.minicluster.injection_settings.injection_settings_of_pod` reads them.
    index
        Index of the pod. None for a template: the result then contains what any of its pods may get, which a
        jobspec must count.

    Returns
    -------
    dict
        A new pod spec. A second injection changes nothing.

    Raises
    ------
    InvalidInjection
        The container does not exist, its command is unknown because it is the image's own, or its host name
        would not be the pod's.
    """
    if problems := host_name_problems(pod_spec, "the pod's spec"):
        raise InvalidInjection(f"it cannot be a Flux cluster: {problems[0]}")
    spec = copy.deepcopy(pod_spec)
    runner = _container(spec, "containers", settings.runner)
    if runner is None:
        raise InvalidInjection(f"the pod has no container {settings.runner!r} to run Flux in")
    _volumes(spec, settings)
    _wrap_runner(runner, settings)
    for name in settings.sidecars:
        sidecar = _container(spec, "initContainers", name) or _container(spec, "containers", name)
        if sidecar is not None:
            _wrap_sidecar(sidecar, settings, wrap=name in settings.wrapped)
    if settings.view is not None:
        _first(spec, _view_container(settings))
    if settings.rest is not None and index in (None, 0):
        _last(spec, _rest_container(settings, spec, runner))
    spec.setdefault("subdomain", settings.service)
    return spec


def inject_patch(pod_spec: Spec, settings: InjectionSettings, index: int | None = None) -> list[Operation]:
    """Return the changes of `inject` as a JSON Patch of a pod."""
    return difference("/spec", pod_spec, inject(pod_spec, settings, index))


def _volumes(spec: Spec, settings: InjectionSettings) -> None:
    volumes = [
        {"name": _FILES, "configMap": {"name": settings.files, "defaultMode": _EXECUTABLE}},
        # Readable for all, because the user of the broker is unknown. Only its container mounts it; broker.sh
        # makes the copy for Flux.
        {"name": _CURVE, "secret": {"secretName": settings.certificate, "defaultMode": _ONLY_READ}},
        {"name": _VIEW, "emptyDir": {}},
    ]
    if settings.view is not None:
        volumes.append({"name": _SOFTWARE, "emptyDir": {}})
    if settings.rest is not None:
        volumes.append(
            {"name": _TOKEN, "secret": {"secretName": settings.rest.token, "defaultMode": _ONLY_READ}}
        )
    present = spec.setdefault("volumes", [])
    mounted = {volume["name"] for volume in present}
    present += [volume for volume in volumes if volume["name"] not in mounted]


def _wrap_runner(container: Spec, settings: InjectionSettings) -> None:
    command = container.get("command") or []
    if command[:2] != _RUN:
        if not command and (settings.needs_command or container.get("args")):
            raise InvalidInjection(
                f"container {settings.runner!r} has no command: "
                "what its image would start is not known here; set the command"
            )
        container["command"] = [*_RUN, *command, *container.pop("args", [])]
    _mount(container, {"name": _CURVE, "mountPath": SECRET_FOLDER, "readOnly": True})
    _mount_flux(container, settings)
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


def _wrap_sidecar(container: Spec, settings: InjectionSettings, *, wrap: bool) -> None:
    if wrap and (container.get("command") or [])[:2] != _START:
        container["command"] = [*_START, container["name"]]
        container.pop("args", None)
    _mount_flux(container, settings)


def _mount_flux(container: Spec, settings: InjectionSettings) -> None:
    _mount(container, {"name": _FILES, "mountPath": FOLDER, "readOnly": True})
    _mount(container, {"name": _VIEW, "mountPath": settings.mount_path})
    if settings.view is not None and settings.flux_from_view:
        _mount(container, {"name": _SOFTWARE, "mountPath": _SOFTWARE_PATH})


def _view_container(settings: InjectionSettings) -> Spec:
    assert settings.view is not None
    view = settings.view
    container: Spec = {
        "name": view.name,
        "image": view.image,
        "imagePullPolicy": "Always" if view.always_pull else "IfNotPresent",
        "command": ["/bin/sh", f"{FOLDER}/flux-init.sh", settings.mount_path, _SOFTWARE_TARGET],
        "volumeMounts": [
            {"name": _FILES, "mountPath": FOLDER, "readOnly": True},
            {"name": _VIEW, "mountPath": settings.mount_path},
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


def _rest_container(settings: InjectionSettings, spec: Spec, runner: Spec) -> Spec:
    """Return the container of the REST service.
    Its user is the one of runner or pod if they name one, else root, as the broker's owner.
    """
    assert settings.rest is not None
    rest = settings.rest
    users = [(source.get("securityContext") or {}).get("runAsUser") for source in (runner, spec)]
    user = next((user for user in users if user is not None), 0)
    return {
        "name": REST_CONTAINER,
        "image": rest.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": ["fluxqueue", "rest"],
        "args": [
            *(
                "--port",
                str(rest.port),
                "--token-file",
                REST_TOKEN_FILE,
                "--settings",
                f"{FOLDER}/settings.sh",
            ),
            *("--environment", f"{settings.mount_path}/config/environment"),
        ],
        "env": [
            {"name": "FLUX_URI", "value": f"local://{settings.mount_path}/config/run/flux/local"},
            {"name": "FLUX_VIEW", "value": f"{settings.mount_path}/view"},
            {"name": "FLUX_SHELL_RC_PATH", "value": FOLDER},
        ],
        "ports": [{"name": "flux-rest", "containerPort": rest.port}],
        # Without a cpu limit: one as small as the request makes the start take tens of seconds.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "runAsUser": user,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": _FILES, "mountPath": FOLDER, "readOnly": True},
            {"name": _VIEW, "mountPath": settings.mount_path},
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
