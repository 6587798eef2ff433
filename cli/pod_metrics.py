"""What pods use at this moment, as the metrics API of Kubernetes (``metrics.k8s.io``) says.

metrics-server or another adapter serves it, where the administrator has installed one. It keeps nothing:
figures end with their pods. So what is not known has a sentence here, which says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.cli.api_client import ApiClient, ApiRefused, NoSuchResource, ObjectNotFound
from fluxqueue.cli.simulated_nodes import why_nothing_runs

__all__ = ["PodUse", "read_use"]

_GROUP = "/apis/metrics.k8s.io"
_ONE_BY_ONE = 4
_FORBIDDEN = 403
_NOT_SERVED = "this cluster serves no metrics (metrics.k8s.io): an administrator installs metrics-server"
_NOT_YET = "nothing is measured yet: the figures come about a minute after a pod starts"


@dataclass(frozen=True)
class PodUse:
    """What the pods of a workload use now.

    Attributes
    ----------
    pods
        How many were measured.
    cores, memory
        Of all of them, in cores and bytes.
    unknown
        Why nothing is known; empty if something is.
    """

    pods: int = 0
    cores: float = 0.0
    memory: float = 0.0
    unknown: str = ""


class _Container(PartialObject, frozen=True):
    usage: dict[str, str | int | float] | None = None


class _PodMetrics(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    containers: list[_Container] | None = None

    def amount(self, resource: str) -> float:
        """Return what all containers use of a resource, in cores or bytes."""
        return float(
            sum(parse_quantity((each.usage or {}).get(resource, 0)) for each in self.containers or ())
        )


class _List(PartialObject, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


def read_use(client: ApiClient, namespace: str, pods: Sequence[Pod]) -> PodUse:
    """Return what the running pods of one workload use.

    Raises
    ------
    ClusterError
        The server does not answer.
    """
    running = {pod.metadata.name for pod in pods if pod.status.phase == "Running"}
    if not running:
        return PodUse(unknown="none of its pods runs")
    try:
        measured = _measured(client, namespace, [pod for pod in pods if pod.metadata.name in running])
    except (NoSuchResource, ObjectNotFound):
        return PodUse(unknown=why_nothing_runs(client, _nodes(pods)) or _NOT_SERVED)
    except ApiRefused as error:
        if error.status == _FORBIDDEN and _is_served(client):
            grant = f"kubectl create rolebinding NAME -n {namespace} --clusterrole=view --user=YOU"
            return PodUse(
                unknown=f"you may not read metrics: an administrator gives you the right by: {grant}"
            )
        if error.status == _FORBIDDEN:
            return PodUse(unknown=why_nothing_runs(client, _nodes(pods)) or _NOT_SERVED)
        return PodUse(unknown=f"the metrics API does not answer ({error})")
    return _summed(measured, running) or PodUse(unknown=why_nothing_runs(client, _nodes(pods)) or _NOT_YET)


def _is_served(client: ApiClient) -> bool:
    """True if there is a metrics API: where there is none, people without the right to read it are refused
    all the same.
    """
    try:
        client.get(_GROUP)
    except (NoSuchResource, ObjectNotFound):
        return False
    return True


def _measured(client: ApiClient, namespace: str, pods: Sequence[Pod]) -> list[_PodMetrics]:
    """Ask for pods by a label they have in common, or one by one."""
    path = f"{_GROUP}/v1beta1/namespaces/{namespace}/pods"
    uid = pods[0].metadata.label(names.CONTROLLER_UID_LABEL)
    if uid is None and len(pods) <= _ONE_BY_ONE:
        found = []
        for pod in pods:
            try:
                found.append(client.get(f"{path}/{pod.metadata.name}"))
            except ObjectNotFound:  # not measured yet
                continue
        return [each for raw in found if (each := _read(raw)) is not None]
    listed = client.get(path, {"labelSelector": f"{names.CONTROLLER_UID_LABEL}={uid}"} if uid else {})
    return [each for raw in msgspec.json.decode(listed, type=_List).items if (each := _read(raw)) is not None]


def _read(raw: bytes | msgspec.Raw) -> _PodMetrics | None:
    try:
        return msgspec.json.decode(raw, type=_PodMetrics)
    except msgspec.DecodeError:
        return None


def _summed(measured: Sequence[_PodMetrics], running: set[str]) -> PodUse | None:
    cores, memory = {}, {}
    for each in measured:
        name = each.metadata.name
        if name in running:
            with contextlib.suppress(InvalidQuantity):
                cores[name], memory[name] = each.amount("cpu"), each.amount("memory")
    return PodUse(len(memory), sum(cores.values()), sum(memory.values())) if memory else None


def _nodes(pods: Sequence[Pod]) -> list[str]:
    return [pod.spec.node_name for pod in pods if pod.spec.node_name]
