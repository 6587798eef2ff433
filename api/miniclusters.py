"""The MiniCluster: a Flux instance that runs in pods (``flux-framework.org/v1alpha2``), with additions.

The spec has the fields and defaults of the Flux Operator's, so that its manifests can be used unchanged. The
operator declares fields that nothing reads (``flux.arch``, ``flux.mungeSecret``, ``pod.resources``). They are
declared here too: they are accepted, and a warning states that they have no effect. The additions are
optional fields of the spec: ``queue``, ``priority`` and ``duration``, which a Job has as annotations;
``podTemplate`` for pod fields that the spec lacks; ``restful`` for the REST service next to the lead broker;
``state`` to save the instance when it is stopped; ``formTimeoutSeconds`` for how long the brokers may take to
connect.

One default differs. A lost connection attempt costs the whole connect timeout, so the default is 2 seconds;
the operator's is 5.

Parts that Kubernetes defines (resources, security contexts) stay decoded JSON. They are passed on and never
interpreted.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import msgspec

from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, PartialObject

__all__ = [
    "DEFAULT_DEADLINE_S",
    "DEFAULT_IMAGE",
    "DEFAULT_VIEW_IMAGE",
    "BurstedCluster",
    "Bursting",
    "Commands",
    "ContainerVolume",
    "FluxContainer",
    "FluxScheduler",
    "FluxSpec",
    "LeadBroker",
    "LifeCycle",
    "Logging",
    "MiniCluster",
    "MiniClusterArchive",
    "MiniClusterContainer",
    "MiniClusterPod",
    "MiniClusterSpec",
    "MiniClusterState",
    "MiniClusterStatus",
    "MissingBroker",
    "Network",
    "PodToleration",
    "RestService",
    "SavedState",
    "SecretKey",
]

DEFAULT_DEADLINE_S = 31_500_000
"""A year less half a day: the operator's default, which stands for no deadline."""

DEFAULT_VIEW_IMAGE = "ghcr.io/converged-computing/flux-view-ubuntu:tag-noble"
DEFAULT_IMAGE = "ghcr.io/rse-ops/accounting:app-latest"

Json = dict[str, Any]
Quantity = str | int | float


class MiniClusterState(enum.StrEnum):
    """The state of a MiniCluster, as its STATE column shows it.

    ``Starting``: it has its nodes and waits for brokers. ``Running``: a quorum of brokers is online.
    ``Stopped``: it is being requeued.
    """

    INVALID = "Invalid"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPED = "Stopped"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class SecretKey(PartialObject, frozen=True):
    """A key of a Secret that gives the value of an environment variable."""

    name: str = ""
    key: str = ""


class ContainerVolume(PartialObject, frozen=True):
    """A volume and its mount path.
    Its type is the first one whose field is set, in the order of the fields.
    """

    csi_driver: str = ""
    csi_driver_attributes: dict[str, str] | None = None
    secret_name: str = ""
    empty_dir: bool = False
    empty_dir_medium: str = ""
    empty_dir_size_limit: Quantity = ""
    host_path: str = ""
    config_map_name: str = ""
    items: dict[str, str] | None = None
    claim_name: str = ""
    path: str = ""
    read_only: bool = False

    @property
    def only_path(self) -> bool:
        """True if only the mount path is set; then the volume is an empty directory."""
        kinds = (
            self.csi_driver,
            self.secret_name,
            self.empty_dir,
            self.host_path,
            self.config_map_name,
            self.claim_name,
        )
        return bool(self.path) and not any(kinds)


class Commands(PartialObject, frozen=True):
    """Shell commands that run before, around and after the main command."""

    prefix: str = ""
    script: str = ""
    init: str = ""
    pre: str = ""
    post: str = ""
    worker_pre: str = ""
    broker_pre: str = ""
    service_pre: str = ""


class LifeCycle(PartialObject, frozen=True):
    """Hooks of a container, each a single executable."""

    post_start_exec: str = ""
    pre_stop_exec: str = ""


class MiniClusterContainer(PartialObject, frozen=True):
    """A container of the brokers' pods (``containers``) or of the services pod (``services``)."""

    image: str = DEFAULT_IMAGE
    name: str = ""
    command: str = ""
    working_dir: str = ""
    pull_always: bool = False
    image_pull_policy: str = "IfNotPresent"
    image_pull_secret: str = ""
    ports: list[int] | None = None
    environment: dict[str, str] | None = None
    secrets: dict[str, SecretKey] | None = None
    run_flux: bool = False
    launcher: bool = False
    batch: bool = False
    batch_raw: bool = False
    logs: str = "/tmp/fluxout"  # noqa: S108 the operator's default
    no_wrap_entrypoint: bool = False
    volumes: dict[str, ContainerVolume] | None = None
    life_cycle: LifeCycle = LifeCycle()
    resources: Json | None = None
    security_context: Json | None = None
    commands: Commands = Commands()


class Network(PartialObject, frozen=True):
    """The name of the headless Service (default: that of the MiniCluster),
    and whether the pods share nodes.
    """

    headless_name: str = ""
    disable_affinity: bool = False


class FluxContainer(PartialObject, frozen=True):
    """The init container that provides Flux; ``disable`` it if the application's image contains Flux."""

    disable: bool = False
    name: str = "flux-view"
    image: str = DEFAULT_VIEW_IMAGE
    mount_path: str = "/mnt/flux"
    working_dir: str = ""
    python_path: str = ""
    resources: Json | None = None
    pull_always: bool = False
    image_pull_secret: str = ""
    security_context: Json | None = None


class FluxScheduler(PartialObject, frozen=True):
    """The scheduler inside the Flux instance: Fluxion, or Flux' simple one."""

    simple: bool = False
    queue_policy: str = "fcfs"


class LeadBroker(PartialObject, frozen=True):
    """The lead broker of the cluster that this one joins."""

    address: str = ""
    name: str = ""
    size: int = 0
    port: int = 8050


class BurstedCluster(PartialObject, frozen=True):
    """A cluster that may join. By default its name is ``burst-N`` and its size is that of this one."""

    name: str = ""
    size: int = 0


class Bursting(PartialObject, frozen=True):
    """Brokers that this MiniCluster does not start."""

    lead_broker: LeadBroker | None = None
    hostlist: str = ""
    clusters: list[BurstedCluster] | None = None


class FluxSpec(PartialObject, frozen=True):
    """How the brokers are started and configured."""

    container: FluxContainer = FluxContainer()
    arch: str = ""
    submit_command: str = ""
    wrap: str = ""
    connect_timeout: str = "2s"
    option_flags: str = ""
    minimal_service: bool = False
    disable_socket: bool = False
    topology: str = ""
    no_wait_socket: bool = False
    complete_workers: bool = False
    log_level: int = 6
    curve_cert: str = ""
    broker_config: str = ""
    scheduler: FluxScheduler = FluxScheduler()
    environment: dict[str, str] | None = None
    bursting: Bursting | None = None
    munge_secret: str = ""


class PodToleration(PartialObject, frozen=True):
    """A toleration of the brokers' pods."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class MiniClusterPod(PartialObject, frozen=True):
    """The fields of the brokers' pods, apart from containers."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    restart_policy: str = "OnFailure"
    service_account_name: str = ""
    runtime_class_name: str = ""
    dns_policy: str = ""
    automount_service_account_token: bool = False
    node_selector: dict[str, str] | None = None
    scheduler_name: str = ""
    tolerations: list[PodToleration] | None = None
    node_affinity: dict[str, list[str]] | None = None
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    resources: dict[str, Quantity] | None = None
    security_context: Json | None = None


class MiniClusterArchive(PartialObject, frozen=True):
    """A dump that is restored at the start, if the file exists."""

    path: str = ""


class Logging(PartialObject, frozen=True):
    """How much the scripts and the brokers log."""

    quiet: bool = False
    strict: bool = False
    debug: bool = False
    zeromq: bool = False
    timed: bool = False


class RestService(PartialObject, frozen=True):
    """The REST service next to the lead broker (an addition to the operator's spec).

    If ``enabled`` is None, it runs if there is no command and ``interactive`` is false. ``token_secret``
    names a Secret with the key ``token``; if it is empty, a Secret is created.
    """

    enabled: bool | None = None
    port: int = 5000
    token_secret: str = ""
    image: str = ""


class SavedState(PartialObject, frozen=True):
    """The volume to which the instance is dumped when it is stopped, and from which it is restored (an
    addition to the operator's spec).

    ``volume.path`` is the mount path in the lead broker's pod.
    """

    volume: ContainerVolume = ContainerVolume()


class MiniClusterSpec(PartialObject, frozen=True):
    """The spec: first the operator's fields, then the additions."""

    containers: list[MiniClusterContainer] = msgspec.field(default_factory=list)
    services: list[MiniClusterContainer] | None = None
    network: Network = Network()
    job_labels: dict[str, str] | None = None
    interactive: bool = False
    size: int = 1
    max_size: int = 0
    min_size: int = 0
    tasks: int = 1
    backoff_limit: int = 0
    deadline_seconds: int = DEFAULT_DEADLINE_S
    cleanup: bool = False
    share_process_namespace: bool = False
    archive: MiniClusterArchive = MiniClusterArchive()
    logging: Logging = Logging()
    flux: FluxSpec = FluxSpec()
    pod: MiniClusterPod = MiniClusterPod()

    queue: str = ""
    priority: int | None = None
    duration: str = ""
    pod_template: Json | None = None
    restful: RestService = RestService()
    state: SavedState | None = None
    form_timeout_seconds: int = 300

    @property
    def maximum(self) -> int:
        """The number of brokers that it may grow to: ``maxSize``, or ``size`` if that is not set."""
        return self.max_size or self.size

    @property
    def runner_index(self) -> int | None:
        """The index of the container that runs Flux: the only one, or the one with ``runFlux``;
        None if that is not exactly one.
        """
        if len(self.containers) == 1:
            return 0
        runners = [index for index, container in enumerate(self.containers) if container.run_flux]
        return runners[0] if len(runners) == 1 else None

    @property
    def serves_rest(self) -> bool:
        """True if the REST service runs: as requested, or by default if there is no command,
        script or interactive session.
        """
        if self.restful.enabled is not None:
            return self.restful.enabled
        index = self.runner_index
        runner = self.containers[index] if index is not None else None
        return (
            runner is not None and not self.interactive and not runner.command and not runner.commands.script
        )


class MissingBroker(PartialObject, frozen=True):
    """A broker that is not online, and the reason that its pod gives."""

    rank: int = 0
    pod: str = ""
    reason: str = ""


class MiniClusterStatus(PartialObject, frozen=True):
    """The status of a MiniCluster.

    ``brokers`` is ``online/size`` as text. ``nodes`` is an RFC 29 hostlist; entry i is the node of rank i.
    ``selector`` and ``size`` are for the scale subresource. ``maximum_size`` is fixed when the CURVE
    certificate is created.
    """

    observed_generation: int = 0
    state: str = ""
    message: str = ""
    size: int = 0
    maximum_size: int = 0
    selector: str = ""
    jobid: str = ""
    brokers: str = ""
    brokers_online: int = 0
    missing: list[MissingBroker] | None = None
    queue: str = ""
    nodes: str = ""
    exit_code: int | None = None
    started_at: str | None = None
    formed_at: str | None = None
    finished_at: str | None = None
    conditions: list[ObjectCondition] | None = None


class MiniCluster(PartialObject, frozen=True):
    """A MiniCluster. Its spec is decoded as it was written, also control characters:
    it is copied into pods, ConfigMaps and Jobs.
    """

    exact_fields: ClassVar[tuple[str, ...]] = ("spec",)
    bounded_specs: ClassVar[tuple[str, ...]] = ("spec",)
    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)

    metadata: ObjectMeta = ObjectMeta()
    spec: MiniClusterSpec = MiniClusterSpec()
    status: MiniClusterStatus = MiniClusterStatus()

    @property
    def service_name(self) -> str:
        """The name of the headless Service, which is also the subdomain of the pods."""
        return self.spec.network.headless_name or self.metadata.name
