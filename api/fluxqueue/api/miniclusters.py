"""The MiniCluster: a Flux instance made of pods, as `flux-framework.org/v1alpha2` writes it, with our additions.

Field for field the spec of the Flux Operator, with its defaults, so that its YAML is read unchanged. What it declares and nothing reads
(``flux.arch``, ``flux.mungeSecret``, ``pod.resources``) is declared here too: it is accepted, and said to do nothing. The additions are
optional and stand at the top of the spec: ``queue``, ``priority`` and ``duration`` as a Job has them in annotations, ``podTemplate`` for
whatever a pod may have that the spec has no field for, ``restful`` for the REST service beside the leader, ``state`` for saving the
instance when it is stopped, ``formTimeoutSeconds`` for how long its brokers may take to find each other.

One default differs: a lost connection attempt costs the whole connect timeout, so that is 2 seconds where the operator says 5.

Parts that Kubernetes defines (resources, security contexts) stay decoded JSON: they are passed through, never interpreted.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from fluxqueue.api.objects import ObjectCondition, ObjectMeta, Part

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
"""A year less half a day: the operator's way to say for ever."""

DEFAULT_VIEW_IMAGE = "ghcr.io/converged-computing/flux-view-ubuntu:tag-noble"
DEFAULT_IMAGE = "ghcr.io/rse-ops/accounting:app-latest"

Json = dict[str, Any]
Quantity = str | int | float


class MiniClusterState(enum.StrEnum):
    """Where a MiniCluster is in its life, as its STATE column says.

    ``Starting`` has its nodes and waits for brokers; ``Running`` has its quorum of brokers; ``Stopped`` is being taken back into the queue.
    """

    INVALID = "Invalid"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPED = "Stopped"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class SecretKey(Part, frozen=True):
    """One key of a Secret, as the value of an environment variable."""

    name: str = ""
    key: str = ""


class ContainerVolume(Part, frozen=True):
    """A volume and where it is mounted; the kind is the first of these that is said, in the order of the fields."""

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


class Commands(Part, frozen=True):
    """Shell text that runs before, around and after the command."""

    prefix: str = ""
    script: str = ""
    init: str = ""
    pre: str = ""
    post: str = ""
    worker_pre: str = ""
    broker_pre: str = ""
    service_pre: str = ""


class LifeCycle(Part, frozen=True):
    """Hooks of a container, each a single executable."""

    post_start_exec: str = ""
    pre_stop_exec: str = ""


class MiniClusterContainer(Part, frozen=True):
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


class Network(Part, frozen=True):
    """The headless Service (default: named like the MiniCluster) and whether pods prefer nodes of their own."""

    headless_name: str = ""
    disable_affinity: bool = False


class FluxContainer(Part, frozen=True):
    """The init container that brings Flux; ``disable`` where the application's image has it."""

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


class FluxScheduler(Part, frozen=True):
    """The scheduler inside: Fluxion unless ``simple``."""

    simple: bool = False
    queue_policy: str = "fcfs"


class LeadBroker(Part, frozen=True):
    """The leader of the cluster that this one joins."""

    address: str = ""
    name: str = ""
    size: int = 0
    port: int = 8050


class BurstedCluster(Part, frozen=True):
    """A cluster that may join; where not said it is ``burst-N`` and as large as this one."""

    name: str = ""
    size: int = 0


class Bursting(Part, frozen=True):
    """Brokers that this MiniCluster does not start."""

    lead_broker: LeadBroker | None = None
    hostlist: str = ""
    clusters: list[BurstedCluster] | None = None


class FluxSpec(Part, frozen=True):
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


class PodToleration(Part, frozen=True):
    """A taint that the brokers' pods put up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class MiniClusterPod(Part, frozen=True):
    """What the brokers' pods have beside their containers."""

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


class MiniClusterArchive(Part, frozen=True):
    """A dump that is restored at start, if the file is there."""

    path: str = ""


class Logging(Part, frozen=True):
    """How much is said."""

    quiet: bool = False
    strict: bool = False
    debug: bool = False
    zeromq: bool = False
    timed: bool = False


class RestService(Part, frozen=True):
    """Ours: the REST service beside the leader.

    ``enabled`` None: where there is no command and ``interactive`` is not asked for. ``token_secret`` names a Secret with the key
    ``token``; empty, one is made.
    """

    enabled: bool | None = None
    port: int = 5000
    token_secret: str = ""
    image: str = ""


class SavedState(Part, frozen=True):
    """Ours: where the instance is dumped when it is stopped, and restored from when it starts again.

    ``volume.path`` is where the leader mounts it.
    """

    volume: ContainerVolume = ContainerVolume()


class MiniClusterSpec(Part, frozen=True):
    """What was asked for: the operator's fields, then ours."""

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
        """How many brokers it may grow to: ``maxSize``, or ``size`` where that is not said."""
        return self.max_size or self.size

    @property
    def runner_index(self) -> int | None:
        """Which container runs Flux: the one that says so, or the only one there is; None where that is not exactly one."""
        if len(self.containers) == 1:
            return 0
        runners = [index for index, container in enumerate(self.containers) if container.run_flux]
        return runners[0] if len(runners) == 1 else None

    @property
    def serves_rest(self) -> bool:
        """Whether the REST service runs: as asked for, else where nothing else is to be done (no command, script or session)."""
        if self.restful.enabled is not None:
            return self.restful.enabled
        index = self.runner_index
        runner = self.containers[index] if index is not None else None
        return runner is not None and not self.interactive and not runner.command and not runner.commands.script


class MissingBroker(Part, frozen=True):
    """A broker that is not online, and why as far as its pod tells."""

    rank: int = 0
    pod: str = ""
    reason: str = ""


class MiniClusterStatus(Part, frozen=True):
    """What became of it.

    ``brokers`` is ``online/size`` as text, ``nodes`` an RFC 29 hostlist whose entry i is rank i, ``selector`` and ``size`` are what the
    scale subresource reads, ``maximum_size`` is frozen when the certificate is made.
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


class MiniCluster(Part, frozen=True):
    """A MiniCluster, as `kubectl get miniclusters` shows it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MiniClusterSpec = MiniClusterSpec()
    status: MiniClusterStatus = MiniClusterStatus()

    @property
    def service_name(self) -> str:
        """Of the headless Service, which is also the subdomain of the pods."""
        return self.spec.network.headless_name or self.metadata.name
