"""What pods use at this moment, as the metrics API of Kubernetes (``metrics.k8s.io``) says.

metrics-server or another adapter serves it, where the administrator has installed one. It keeps nothing:
figures end with their pods. So what is not known has a sentence here, which says why. The dashboard asks the
same by its own client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.cli.api_client import ApiClient, ApiRefused, NoSuchResource, ObjectNotFound
from fluxqueue.cli.simulated_nodes import why_nothing_runs

__all__ = ["METRICS_GROUP", "PodUse", "metrics_requests", "read_use", "unmeasured", "use_in"]

METRICS_GROUP = "/apis/metrics.k8s.io"
_ONE_BY_ONE = 4
_FORBIDDEN = 403
_MOST = 2.0**60
"""Cores, or bytes, of one pod; more was not measured."""
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
    items: tuple[msgspec.Raw, ...] | None = None


def read_use(client: ApiClient, namespace: str, pods: Sequence[Pod]) -> PodUse:
    """Return what the running pods of one workload use.

    Raises
    ------
    ClusterError
        The server does not answer.
    """
    running = [pod for pod in pods if pod.status.phase == "Running"]
    if not running:
        return PodUse(unknown="none of its pods runs")
    answers, refused = [], False
    for path, query in metrics_requests(namespace, running):
        try:
            answers.append(client.get(path, query))
        except (NoSuchResource, ObjectNotFound):
            continue
        except ApiRefused as error:
            if error.status != _FORBIDDEN:
                return PodUse(unknown=f"the metrics API does not answer ({error})")
            refused = True
    return use_in(answers, running) or unmeasured(
        namespace,
        served=bool(answers) or _is_served(client),
        refused=refused,
        simulated=why_nothing_runs(client, _nodes(pods)),
    )


def metrics_requests(namespace: str, pods: Sequence[Pod]) -> list[tuple[str, dict[str, str]]]:
    """Return the paths and parameters that ask for pods: by a label they have in common, or one by one."""
    path = f"{METRICS_GROUP}/v1beta1/namespaces/{namespace}/pods"
    uid = pods[0].metadata.label(names.CONTROLLER_UID_LABEL)
    if uid is None and len(pods) <= _ONE_BY_ONE:
        return [(f"{path}/{pod.metadata.name}", {}) for pod in pods]
    return [(path, {"labelSelector": f"{names.CONTROLLER_UID_LABEL}={uid}"} if uid else {})]


def use_in(answers: Iterable[bytes], pods: Iterable[Pod]) -> PodUse | None:
    """Return what pods use by the answers to `metrics_requests`; None if none of them is measured."""
    wanted = {pod.metadata.name for pod in pods}
    cores, memory = {}, {}
    for each in _measured(answers):
        name = each.metadata.name
        if name in wanted:
            with contextlib.suppress(InvalidQuantity, OverflowError):
                used = each.amount("cpu"), each.amount("memory")
                if max(used) <= _MOST:
                    cores[name], memory[name] = used
    return PodUse(len(memory), sum(cores.values()), sum(memory.values())) if memory else None


def unmeasured(namespace: str, *, served: bool, refused: bool, simulated: str) -> PodUse:
    """Return why nothing is known.

    Parameters
    ----------
    namespace
        That of the pods.
    served
        Whether there is a metrics API: where there is none, people without the right to read it are refused
        all the same.
    refused
        Whether the person was.
    simulated
        That the nodes are simulated; empty if they are not.
    """
    if served and refused:
        grant = f"kubectl create rolebinding NAME -n {namespace} --clusterrole=view --user=YOU"
        return PodUse(unknown=f"you may not read metrics: an administrator gives you the right by: {grant}")
    return PodUse(unknown=simulated or (_NOT_YET if served else _NOT_SERVED))


def _is_served(client: ApiClient) -> bool:
    try:
        client.get(METRICS_GROUP)
    except (NoSuchResource, ObjectNotFound):
        return False
    return True


def _measured(answers: Iterable[bytes]) -> Iterator[_PodMetrics]:
    for answer in answers:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            items = msgspec.json.decode(answer, type=_List).items
            for raw in (answer,) if items is None else items:
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    yield msgspec.json.decode(raw, type=_PodMetrics)


def _nodes(pods: Sequence[Pod]) -> list[str]:
    return [pod.spec.node_name for pod in pods if pod.spec.node_name]
