"""What a workload asks of its nodes besides its requests, in words, read from the jobspec of its FluxJob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.formatting import format_constraint, format_graph_amount
from fluxqueue.api.graphnames import is_device
from fluxqueue.api.metadata import PartialObject
from fluxqueue.cli.topology_text import topology_text

__all__ = ["device_text", "least_pods", "node_text"]


class _System(PartialObject, frozen=True):
    constraints: dict[str, Any] | None = None
    domains: list[dict[str, Any]] | None = None


class _User(PartialObject, frozen=True):
    min_pods: int = 0


class _Attributes(PartialObject, frozen=True):
    system: _System = _System()
    user: _User = _User()


class _Jobspec(PartialObject, frozen=True):
    """A jobspec, with the fields that are shown."""

    attributes: _Attributes = _Attributes()
    resources: list[dict[str, Any]] | None = None


def node_text(job: FluxJob) -> list[tuple[str, str]]:
    """Return the constraint on nodes, what is asked of the topology, and the devices that are claimed,
    each with its name.
    """
    jobspec = _jobspec(job)
    system, resources = jobspec.attributes.system, jobspec.resources or []
    facts = [
        ("Only nodes", format_constraint(system.constraints)),
        ("Topology", topology_text(resources, system.domains or [])),
        ("Devices", device_text(resources)),
    ]
    return [(name, words) for name, words in facts if words]


def least_pods(job: FluxJob) -> int:
    """Return with how few pods a workload may start; 0: with all."""
    return _jobspec(job).attributes.user.min_pods


def _jobspec(job: FluxJob) -> _Jobspec:
    try:
        return msgspec.json.decode(job.spec.jobspec or b"{}", type=_Jobspec)
    except msgspec.MsgspecError:
        return _Jobspec()


def device_text(resources: Sequence[Mapping[str, Any]]) -> str:
    """Return the devices that all pods of a jobspec claim together; empty if they claim none."""
    counts: Counter[str] = Counter()
    for kind, amount in _amounts(resources, 1):
        counts[kind] += amount
    words = " and ".join(format_graph_amount(kind, count) for kind, count in sorted(counts.items()))
    return f"{words} in all; kube-scheduler chooses which" if words else ""


def _amounts(resources: Sequence[Mapping[str, Any]], times: int) -> Iterator[tuple[str, int]]:
    for each in resources:
        count = each.get("count", 1)
        number = times * count if isinstance(count, int) else times
        if is_device(str(each.get("type", ""))):
            yield str(each["type"]), number
        yield from _amounts(each.get("with") or (), number)
