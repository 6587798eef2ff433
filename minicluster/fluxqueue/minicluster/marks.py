"""What a pod carries that says how Flux is put into it.

A pod is admitted without anything being looked up, so what is injected follows from the pod alone. The template of a MiniCluster's Job
carries its marks as one annotation. A Job that a person annotated carries only ``fluxqueue/minicluster: "true"`` and what the Job
controller adds (the Job's name and uid), and the same marks are derived from those; the queue derives them from the Job and arrives at the
same names.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.miniclusters import (
    FluxContainer,
    FluxSpec,
    MiniCluster,
    MiniClusterContainer,
    MiniClusterSpec,
    RestService,
)
from fluxqueue.api.objects import ObjectMeta, Part
from fluxqueue.minicluster.naming import Identity

__all__ = ["InvalidMarks", "Marks", "RestMark", "View", "annotated_minicluster", "identity_of", "marks_of", "marks_of_job", "marks_of_pod"]

_MODES = ("single", "launcher", "session")
_NO_VIEW = "none"
_MAX_JOB_NAME = 52


class InvalidMarks(ValueError):
    """The annotations do not make a Flux cluster; the message names the annotation and what it may be."""


class View(Part, frozen=True):
    """The init container that brings Flux, as `FluxContainer` describes it."""

    name: str = "flux-view"
    image: str = ""
    always_pull: bool = False
    working_dir: str = ""
    resources: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None


class RestMark(Part, frozen=True):
    """The REST service beside the leader."""

    image: str = ""
    port: int = 5000
    token: str = ""


class Marks(Part, frozen=True):
    """Everything `fluxqueue.minicluster.injection` needs.

    Attributes
    ----------
    files, certificate, service
        Names of the ConfigMap, the Secret and the headless Service.
    runner
        Container that runs Flux, and so the broker.
    sidecars
        Containers that find Flux, too; those in ``wrapped`` are started by our script.
    mount_path
        Where the view and the broker's files are.
    flux_from_view
        Whether the containers use the view's Flux; otherwise their image has it.
    view
        None where nothing needs a view.
    needs_command
        Whether the command's words come with the pod, as those of an annotated Job do.
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
    rest: RestMark | None = None
    needs_command: bool = False

    @property
    def annotation(self) -> str:
        """The annotation's value."""
        return msgspec.json.encode(self, order="sorted").decode()


def identity_of(cluster: MiniCluster) -> Identity:
    """Whose objects a MiniCluster's are."""
    meta = cluster.metadata
    return Identity(meta.name, meta.namespace, meta.uid, headless=cluster.spec.network.headless_name)


def marks_of(identity: Identity, spec: MiniClusterSpec, image: str) -> Marks:
    """The marks of a cluster.

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
    rest_mark = RestMark(image=rest.image or image, port=rest.port, token=rest.token_secret or identity.token) if spec.serves_rest else None
    return Marks(
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


def marks_of_pod(meta: ObjectMeta, runner: str) -> Marks | None:
    """The marks of a pod at admission.

    Parameters
    ----------
    meta
        Of the pod (or of a template, once it carries the Job's name and uid).
    runner
        Its first container, which runs Flux where the annotation does not say.

    Returns
    -------
    Marks or None
        None where Flux was not asked for.

    Raises
    ------
    InvalidMarks
        It was, and cannot be had.
    """
    written = meta.annotation(names.INJECTION_ANNOTATION)
    if written is not None:
        try:
            return msgspec.json.decode(written, type=Marks)
        except msgspec.DecodeError as error:
            raise InvalidMarks(f"annotation {names.INJECTION_ANNOTATION} cannot be read: {error}") from None
    if meta.annotation(names.MINICLUSTER_ANNOTATION) != "true":
        return None
    job, uid = meta.label(names.JOB_NAME_LABEL), meta.label(names.CONTROLLER_UID_LABEL)
    if not job or not uid:
        raise InvalidMarks(f"annotation {names.MINICLUSTER_ANNOTATION} is for Jobs: this pod was not made by one")
    return marks_of_job(job, meta.namespace, uid, meta.annotations or {}, runner)


def marks_of_job(name: str, namespace: str, uid: str, annotations: dict[str, str], runner: str) -> Marks:
    """The marks of an annotated Job's pods; as `marks_of_pod`, for the queue."""
    cluster = annotated_minicluster(name, namespace, uid, 1, annotations, runner)
    return marks_of(_job_identity(name, namespace, uid), cluster.spec, "")


def annotated_minicluster(name: str, namespace: str, uid: str, size: int, annotations: dict[str, str], runner: str) -> MiniCluster:
    """An annotated Job as the MiniCluster it stands for.

    Parameters
    ----------
    name, namespace, uid
        Of the Job.
    size
        Its completions.
    annotations
        Of its pod template: ``fluxqueue/minicluster-mode`` (``single``, the default: the command is one job of the whole cluster;
        ``launcher``: it submits its own; ``session``: the instance stays behind it), ``-tasks`` (default: one for each pod) and ``-view``
        (an image that brings Flux, or ``none`` where the application's has it).
    runner
        The container that runs Flux.

    Raises
    ------
    InvalidMarks
        An annotation has no meaning, or the name is too long for host names.
    """
    if len(name) > _MAX_JOB_NAME:
        raise InvalidMarks(
            f"Job {name} cannot be a Flux cluster: its name may have {_MAX_JOB_NAME} characters, for its hosts are named after it"
        )
    mode = annotations.get(names.MINICLUSTER_MODE_ANNOTATION, _MODES[0])
    if mode not in _MODES:
        raise InvalidMarks(f"annotation {names.MINICLUSTER_MODE_ANNOTATION} says {mode!r}: it may be {', '.join(_MODES)}")
    tasks = annotations.get(names.MINICLUSTER_TASKS_ANNOTATION, str(size))
    if not tasks.isascii() or not tasks.isdigit() or len(tasks) > 7:
        raise InvalidMarks(f"annotation {names.MINICLUSTER_TASKS_ANNOTATION} says {tasks!r}: it is a number of tasks")
    image = annotations.get(names.MINICLUSTER_VIEW_ANNOTATION, "")
    view = FluxContainer(disable=True) if image == _NO_VIEW else FluxContainer(image=image) if image else FluxContainer()
    spec = MiniClusterSpec(
        size=size,
        tasks=int(tasks),
        interactive=mode == "session",
        containers=[MiniClusterContainer(name=runner, launcher=mode == "launcher")],
        flux=FluxSpec(container=view),
        restful=RestService(enabled=False),
    )
    return MiniCluster(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid), spec=spec)


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
