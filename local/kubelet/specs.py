"""Pods as the agent reads them: all fields that decide what runs.

Unlike the structs of `fluxqueue.api`, which hold what placement depends on, these are decoded from the pod
exactly as it is written: a command may have control characters, and every annotation can be a variable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.local.kubelet.volume_specs import FieldRef, ResourceRef, Volume

__all__ = [
    "Container",
    "EnvVar",
    "Handler",
    "HttpGet",
    "PodObject",
    "PodSpec",
    "Probe",
    "WatchedPod",
    "decode_pod",
]

MOST_POD_BYTES = 4 << 20


class PodMeta(ObjectMeta, frozen=True):
    """The metadata of a pod."""

    deletion_grace_period_seconds: int | None = None


class _Node(PartialObject, frozen=True):
    node_name: str = ""


class _Phase(PartialObject, frozen=True):
    phase: str = ""


class WatchedPod(PartialObject, frozen=True):
    """The part of a pod that is watched: where it is, and whether it ends."""

    metadata: PodMeta = PodMeta()
    spec: _Node = _Node()
    status: _Phase = _Phase()


class KeyRef(PartialObject, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvSource(PartialObject, frozen=True):
    """The origin of a variable: one of these."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(PartialObject, frozen=True):
    """A variable."""

    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class Source(PartialObject, frozen=True):
    """A ConfigMap or Secret by name."""

    name: str = ""
    optional: bool = False


class EnvFrom(PartialObject, frozen=True):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str = ""
    config_map_ref: Source | None = None
    secret_ref: Source | None = None


class Resources(PartialObject, frozen=True):
    """Requests and limits as they are written."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Port(PartialObject, frozen=True):
    """A named port."""

    name: str = ""
    container_port: int = 0


class Mount(PartialObject, frozen=True):
    """Where a volume is mounted."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class ExecAction(PartialObject, frozen=True):
    """A command in the container."""

    command: list[str] | None = None


class HttpHeader(PartialObject, frozen=True):
    """A header of a request."""

    name: str = ""
    value: str = ""


class HttpGet(PartialObject, frozen=True):
    """An HTTP request."""

    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: list[HttpHeader] | None = None


class TcpSocket(PartialObject, frozen=True):
    """A TCP connection."""

    port: int | str = 0
    host: str = ""


class Grpc(PartialObject, frozen=True):
    """A call of the gRPC health service."""

    port: int = 0
    service: str | None = None


class Sleep(PartialObject, frozen=True):
    """A pause."""

    seconds: int = 0


class Probe(PartialObject, frozen=True):
    """A startup, liveness or readiness probe."""

    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    grpc: Grpc | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Handler(PartialObject, frozen=True):
    """What is done after the start or before the stop."""

    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    sleep: Sleep | None = None


class Lifecycle(PartialObject, frozen=True):
    """The hooks of a container."""

    post_start: Handler | None = None
    pre_stop: Handler | None = None


class ExitCodes(PartialObject, frozen=True):
    """The exit codes of a rule."""

    operator: str = ""
    values: list[int] | None = None


class RestartRule(PartialObject, frozen=True):
    """What is done after some exit codes."""

    action: str = ""
    exit_codes: ExitCodes | None = None


class Container(PartialObject, frozen=True):
    """A container; as an init container with ``restart_policy`` ``Always`` it is a sidecar."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str = ""
    env: list[EnvVar] | None = None
    env_from: list[EnvFrom] | None = None
    ports: list[Port] | None = None
    resources: Resources = Resources()
    volume_mounts: list[Mount] | None = None
    volume_devices: list[dict[str, Any]] | None = None
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"


class ReadinessGate(PartialObject, frozen=True):
    """A condition that must be true before the pod is ready."""

    condition_type: str = ""


class PodSpec(PartialObject, frozen=True):
    """What runs."""

    node_name: str = ""
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    hostname: str = ""
    hostname_override: str | None = None
    subdomain: str = ""
    host_network: bool = False
    service_account_name: str = ""
    readiness_gates: list[ReadinessGate] | None = None


class _Condition(PartialObject, frozen=True):
    type: str = ""
    status: str = ""


class _ContainerStatus(PartialObject, frozen=True):
    name: str = ""
    state: dict[str, Any] | None = None


class PodStatus(PartialObject, frozen=True):
    """What was written before."""

    phase: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class PodObject(PartialObject, frozen=True):
    """A pod.

    ``note`` is no field of Kubernetes: what its status says about it here, whatever becomes of it.
    """

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    note: str = ""

    @property
    def hostname(self) -> str:
        """The pod's host name."""
        return self.spec.hostname_override or self.spec.hostname or self.metadata.name[:63].rstrip("-.")

    @property
    def sidecars(self) -> list[Container]:
        """Init containers that run as long as the pod."""
        return [each for each in self.spec.init_containers or () if each.restart_policy == "Always"]

    @property
    def refusal(self) -> str:
        """Why the pod cannot run here; empty if it can."""
        for volume in self.spec.volumes or ():
            if volume.refusal:
                return volume.refusal
        for container in (*(self.spec.init_containers or ()), *self.spec.containers):
            if container.volume_devices:
                return (
                    f"container {container.name} has volumeDevices, "
                    "and nodes of processes have no block devices"
                )
            if any(mount.sub_path_expr for mount in container.volume_mounts or ()):
                return (
                    f"container {container.name} has subPathExpr, which nodes of processes do not know: "
                    "use subPath"
                )
            if container.working_dir and not container.working_dir.startswith("/"):
                return (
                    f"container {container.name} has the workingDir {container.working_dir}, "
                    "which is not an absolute path"
                )
            if not container.command and not container.args:
                return (
                    f"container {container.name} has neither command nor args, "
                    "and nodes of processes have no images that would know one"
                )
        return ""


_decoder = msgspec.json.Decoder(PodObject)


def decode_pod(data: bytes) -> PodObject:
    """Decode a pod.

    Raises
    ------
    msgspec.MsgspecError
        It does not fit.
    """
    if len(data) > MOST_POD_BYTES:
        raise msgspec.DecodeError(f"it has {len(data)} bytes, more than {MOST_POD_BYTES}")
    return _decoder.decode(data)
