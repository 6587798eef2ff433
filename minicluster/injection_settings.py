"""The settings by which Flux is injected into a pod, and how a pod carries them.

Nothing is looked up at admission, so the injection depends on the pod alone. The template of a MiniCluster's
Job carries its settings as one annotation. A Job that a person annotated carries only
``fluxqueue/minicluster: "true"`` and what the Job controller adds (the Job's name and uid). The same settings
are derived from those. The queue derives them from the Job and gets the same names.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.miniclusters import (
    FluxContainer,
    FluxSpec,
    MiniCluster,
    MiniClusterContainer,
    MiniClusterSpec,
    RestService,
)
from fluxqueue.minicluster.bounds import MOST_BROKERS
from fluxqueue.minicluster.naming import Identity

__all__ = [
    "InjectionSettings",
    "InvalidInjection",
    "RestSettings",
    "View",
    "annotated_minicluster",
    "identity_of",
    "injection_settings",
    "injection_settings_of_job",
    "injection_settings_of_pod",
]

_MODES = ("single", "launcher", "session")
_NO_VIEW = "none"
_MAX_JOB_NAME = 52
_LONGEST_MARKS = 200_000
_LONGEST_IMAGE = 1_024


class InvalidInjection(ValueError):
    """The annotations do not describe a Flux cluster;
    the message names the annotation and its possible values.
    """


class View(PartialObject, frozen=True):
    """The init container that provides Flux, as described by `FluxContainer`."""

    name: str = "flux-view"
    image: str = ""
    always_pull: bool = False
    working_dir: str = ""
    resources: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None


class RestSettings(PartialObject, frozen=True):
    """The REST service next to the leader."""

    image: str = ""
    port: int = 5000
    token: str = ""


class InjectionSettings(PartialObject, frozen=True):
    """Everything `fluxqueue.minicluster.injection` needs.

    Attributes
    ----------
    files, certificate, service
        Names of the ConfigMap, the Secret and the headless Service.
    runner
        The container that runs Flux, and with it the broker.
    sidecars
        Other containers with Flux on their path. Those in ``wrapped`` are started by our script.
    mount_path
        Path of the view and the broker's files.
    flux_from_view
        True if the containers use the view's Flux; otherwise their image contains it.
    view
        None if nothing needs a view.
    needs_command
        True if the pod contains the command, as the pods of an annotated Job do.
    """

    files: str
    certificate: str
    service: str
    runner: str
    sidecars: tuple[str, ...] = ()
    wrapped: tuple[str, ...] = ()
    mount_path: str = "/mnt/flux"
    flux_from_view: bool = True
    view: View | None = None
    rest: RestSettings | None = None
    needs_command: bool = False

    @property
    def annotation(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self, order="sorted").decode()


def identity_of(cluster: MiniCluster) -> Identity:
    """Return the identity of a MiniCluster."""
    meta = cluster.metadata
    return Identity(meta.name, meta.namespace, meta.uid, headless=cluster.spec.network.headless_name)


def injection_settings(identity: Identity, spec: MiniClusterSpec, image: str) -> InjectionSettings:
    """The settings of a cluster.

    Parameters
    ----------
    identity
        Whose cluster it is.
    spec
        Valid.
    image
        Ours, for the REST service where the spec names none.
    """
    runner = spec.runner_index or 0
    container = spec.flux.container
    others = [each for place, each in enumerate(spec.containers) if place != runner]
    rest = spec.restful
    rest_mark = (
        RestSettings(image=rest.image or image, port=rest.port, token=rest.token_secret or identity.token)
        if spec.serves_rest
        else None
    )
    return InjectionSettings(
        files=identity.files,
        certificate=identity.certificate,
        service=identity.service,
        runner=_runner_name(identity, spec.containers[runner]),
        sidecars=tuple(each.name for each in others),
        wrapped=tuple(each.name for each in others if not each.no_wrap_entrypoint),
        mount_path=container.mount_path,
        flux_from_view=not container.disable,
        view=_view(container) if rest_mark is not None or not container.disable else None,
        rest=rest_mark,
        needs_command=identity.kind == "Job",
    )


def injection_settings_of_pod(meta: ObjectMeta, runner: str) -> InjectionSettings | None:
    """The settings of a pod at admission.

    Parameters
    ----------
    meta
        Metadata of the pod (or of a template, with the Job's name and uid).
    runner
        Its first container, which runs Flux unless the annotation names another one.

    Returns
    -------
    Marks or None
        None if Flux was not requested.

    Raises
    ------
    InvalidInjection
        Flux was requested, and the settings are invalid.
    """
    written = meta.annotation(names.INJECTION_ANNOTATION)
    if written is not None:
        if len(written) > _LONGEST_MARKS:
            raise InvalidInjection(
                f"annotation {names.INJECTION_ANNOTATION} is {len(written)} characters long: "
                "the queue writes less"
            )
        try:
            return msgspec.json.decode(written, type=InjectionSettings)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInjection(
                f"annotation {names.INJECTION_ANNOTATION} cannot be read: {error}"
            ) from None
    if meta.annotation(names.MINICLUSTER_ANNOTATION) != "true":
        return None
    job, uid = meta.label(names.JOB_NAME_LABEL), meta.label(names.CONTROLLER_UID_LABEL)
    if not job or not uid:
        raise InvalidInjection(
            f"annotation {names.MINICLUSTER_ANNOTATION} is for Jobs: this pod was not made by one"
        )
    return injection_settings_of_job(job, meta.namespace, uid, meta.annotations or {}, runner)


def injection_settings_of_job(
    name: str, namespace: str, uid: str, annotations: dict[str, str], runner: str
) -> InjectionSettings:
    """The settings of an annotated Job's pods; as `injection_settings_of_pod`, for the queue."""
    cluster = annotated_minicluster(name, namespace, uid, 1, annotations, runner)
    return injection_settings(_job_identity(name, namespace, uid), cluster.spec, "")


def annotated_minicluster(
    name: str, namespace: str, uid: str, size: int, annotations: dict[str, str], runner: str
) -> MiniCluster:
    """Return an annotated Job as the equivalent MiniCluster.

    Parameters
    ----------
    name, namespace, uid
        Name, namespace and uid of the Job.
    size
        Completions of the Job.
    annotations
        Annotations of its pod template: ``fluxqueue/minicluster-mode`` (``single``, the default: the command
        is one job of the whole cluster; ``launcher``: it submits its own jobs; ``session``: the instance
        continues after it), ``-tasks`` (default: one per pod) and ``-view`` (an image that contains Flux, or
        ``none`` if the application's image contains it).
    runner
        The container that runs Flux.

    Raises
    ------
    InvalidInjection
        An annotation is invalid, or hosts and a Service cannot be named after the Job.
    """
    _check_name(name)
    mode = annotations.get(names.MINICLUSTER_MODE_ANNOTATION, _MODES[0])
    if mode not in _MODES:
        raise InvalidInjection(
            f"annotation {names.MINICLUSTER_MODE_ANNOTATION} says {mode!r:.80}: it may be {', '.join(_MODES)}"
        )
    tasks = annotations.get(names.MINICLUSTER_TASKS_ANNOTATION, str(size))
    if not tasks.isascii() or not tasks.isdigit() or len(tasks) > 7:
        raise InvalidInjection(
            f"annotation {names.MINICLUSTER_TASKS_ANNOTATION} says {tasks!r:.80}: it is a number of tasks"
        )
    image = annotations.get(names.MINICLUSTER_VIEW_ANNOTATION, "")
    if len(image) > _LONGEST_IMAGE:
        raise InvalidInjection(
            f"annotation {names.MINICLUSTER_VIEW_ANNOTATION} is {len(image)} characters long: "
            "it is the name of an image"
        )
    if not 1 <= size <= MOST_BROKERS:
        raise InvalidInjection(
            f"Job {name} cannot be a Flux cluster: it has {size} completions, "
            f"and there may be 1 to {MOST_BROKERS} brokers"
        )
    spec = MiniClusterSpec(
        size=size,
        tasks=int(tasks),
        interactive=mode == "session",
        containers=[MiniClusterContainer(name=runner, launcher=mode == "launcher")],
        flux=FluxSpec(container=_chosen_view(image)),
        restful=RestService(enabled=False),
    )
    return MiniCluster(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid), spec=spec)


def _check_name(name: str) -> None:
    if len(name) > _MAX_JOB_NAME:
        raise InvalidInjection(
            f"Job {name} cannot be a Flux cluster: its name may have {_MAX_JOB_NAME} characters, "
            "because its hosts are named after it"
        )
    if "." in name:
        raise InvalidInjection(
            f"Job {name} cannot be a Flux cluster: hosts and a Service are named after it, "
            "so its name has no dots"
        )


def _job_identity(name: str, namespace: str, uid: str) -> Identity:
    return Identity(name, namespace, uid, api_version="batch/v1", kind="Job")


def _runner_name(identity: Identity, container: MiniClusterContainer) -> str:
    return container.name if identity.kind == "Job" else identity.name


def _view(container: FluxContainer) -> View:
    return View(
        name=container.name,
        image=container.image,
        always_pull=container.pull_always,
        working_dir=container.working_dir,
        resources=container.resources,
        security_context=container.security_context,
    )


def _chosen_view(image: str) -> FluxContainer:
    if image == _NO_VIEW:
        return FluxContainer(disable=True)
    return FluxContainer(image=image) if image else FluxContainer()
