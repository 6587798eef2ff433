"""The configuration of the brokers, written from the allocation before any of them starts.

The inner Flux gets its resources from the configuration and does not detect them: ``hwloc`` in a pod finds
the whole node. Each host has the cores and GPUs that its pod was granted, also on nodes of different kinds.
If more brokers may join later (``maxSize``), they are listed too, with the share that every pod of the
template requests, because Flux reads its resources only once.

This has two consequences. Verification is off: it compares with what hwloc finds, and would drain every host
with a share of its node and every host whose cpus are hardware threads. And core ids are counted from 0 on
each host. They are ordinal numbers, not cores of the machine. So tasks are not bound to them (`AFFINITY`), or
two pods of one node would share their first cores and leave the others idle.

flux-core ignores unknown tables, but an unknown key in ``[bootstrap]`` ends it. So the configuration contains
only keys of all versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from fluxqueue.api import hostlists
from fluxqueue.api.graphnames import is_gpu
from fluxqueue.api.miniclusters import Bursting, FluxSpec, LeadBroker, MiniClusterSpec
from fluxqueue.minicluster.naming import Identity

__all__ = ["AFFINITY", "CLUSTER_DOMAIN", "PORT", "Share", "configuration", "hosts", "share_of"]

PORT = 8050
CLUSTER_DOMAIN = "cluster.local"

AFFINITY = """\
-- Cores are counted from 0 in each pod, so their numbers are not those of the machine: \
tasks are bound only on request.
if shell.options["cpu-affinity"] == nil then
    shell.options["cpu-affinity"] = "off"
end
"""


@dataclass(frozen=True, slots=True)
class Share:
    """The resources of one broker: whole cores and GPUs."""

    cores: int
    gpus: int = 0


def share_of(requests: Mapping[str, Decimal], node_cpus: Decimal | None = None) -> Share:
    """Return what a broker may use of what its container was granted.

    Parameters
    ----------
    requests
        Requests of the container that runs Flux, by Kubernetes resource name in base units. Sidecars use
        their own requests.
    node_cpus
        Allocatable cpus of its node: a container without a cpu request may use whatever is idle there.

    Returns
    -------
    Share
        Whole cores, rounded down, at least one: a broker without a core could never run a task.
    """
    cpus = requests.get("cpu") or node_cpus or Decimal(1)
    gpus = sum((amount for name, amount in requests.items() if is_gpu(name)), Decimal(0))
    return Share(max(1, int(cpus)), int(gpus))


def hosts(identity: Identity, spec: MiniClusterSpec) -> list[str]:
    """Return the hosts of an instance; entry i is rank i.

    Parameters
    ----------
    identity
        The owner of the pods.
    spec
        Their maximum number, and brokers that others start (``flux.bursting``).
    """
    own = [identity.host(index) for index in range(spec.maximum)]
    bursting = spec.flux.bursting
    if bursting is None:
        return own
    if bursting.hostlist:
        return hostlists.decode(bursting.hostlist)
    lead = (
        [f"{bursting.lead_broker.name}-{index}" for index in range(bursting.lead_broker.size)]
        if bursting.lead_broker
        else []
    )
    return [*lead, *own, *_burst(bursting, spec.size)]


def configuration(
    identity: Identity,
    spec: MiniClusterSpec,
    shares: Sequence[Share],
    cluster_domain: str = CLUSTER_DOMAIN,
    *,
    guests: bool = False,
) -> str:
    """Return the text of ``broker.toml``.

    Parameters
    ----------
    identity
        The owner of the brokers.
    spec
        Queue policy, topology, time-out and bursting, or the whole text (``flux.brokerConfig``).
    shares
        Shares of the pods 0, 1, ... with an allocation; other hosts get the last one's.
    cluster_domain
        DNS domain of the Kubernetes cluster.
    guests
        True if users other than the brokers' may access the instance. Root always counts as its owner.
    """
    flux = spec.flux
    if flux.broker_config:
        return flux.broker_config if flux.broker_config.endswith("\n") else f"{flux.broker_config}\n"
    members = hosts(identity, spec)
    lines = ["# Written from the allocation of this cluster; changes here are lost.", ""]
    lines += ["[access]", *(["allow-guest-user = true"] if guests else []), "allow-root-owner = true", ""]
    lines += _bootstrap(identity, flux, members, cluster_domain)
    lines += ["", "[tbon]"]
    if flux.connect_timeout:
        lines.append(f"connect_timeout = {_quoted(flux.connect_timeout)}")
    if flux.topology:
        lines.append(f"topo = {_quoted(flux.topology)}")
    lines += ["", "[resource]", "noverify = true"]
    lines += _resources(members, _shares_of(identity, members, shares))
    if not flux.scheduler.simple:
        lines += ["", "[sched-fluxion-qmanager]", f"queue-policy = {_quoted(flux.scheduler.queue_policy)}"]
    return "\n".join(lines) + "\n"


def _bootstrap(identity: Identity, flux: FluxSpec, members: Sequence[str], cluster_domain: str) -> list[str]:
    lead = flux.bursting.lead_broker if flux.bursting else None
    return [
        "[bootstrap]",
        f"curve_cert = {_quoted(f'{flux.container.mount_path}/config/curve/curve.cert')}",
        f"default_port = {PORT}",
        f"default_bind = {_quoted('tcp://*:%p')}",
        f"default_connect = {_quoted(f'tcp://%h.{identity.domain(cluster_domain)}:%p')}",
        "hosts = [",
        *_entries(members, lead),
        "]",
    ]


def _entries(members: Sequence[str], lead: LeadBroker | None) -> list[str]:
    if lead is None or not lead.address:
        return [f"    {{ host = {_quoted(hostlists.encode(members))} }},"]
    connect = f"tcp://{lead.address}:{lead.port}"
    return [
        f"    {{ host = {_quoted(members[0])}, connect = {_quoted(connect)} }},",
        f"    {{ host = {_quoted(hostlists.encode(members[1:]))} }},",
    ]


def _shares_of(identity: Identity, members: Sequence[str], shares: Sequence[Share]) -> dict[str, Share]:
    """Return the share of every host: of our pods by index;
    hosts that others start and future pods get the last one's.
    """
    last = shares[-1] if shares else Share(1)
    known = {identity.host(index): share for index, share in enumerate(shares)}
    return {member: known.get(member, last) for member in members}


def _resources(members: Sequence[str], share_of_host: Mapping[str, Share]) -> list[str]:
    lines: list[str] = []
    alike: dict[Share, list[str]] = {}
    for member in members:
        alike.setdefault(share_of_host[member], []).append(member)
    for share, having in alike.items():
        lines += [
            "",
            "[[resource.config]]",
            f"hosts = {_quoted(hostlists.encode(having))}",
            f"cores = {_quoted(_first(share.cores))}",
        ]
        if share.gpus:
            lines.append(f"gpus = {_quoted(_first(share.gpus))}")
    return lines


def _burst(bursting: Bursting, size: int) -> Iterable[str]:
    for position, cluster in enumerate(bursting.clusters or ()):
        name = cluster.name or f"burst-{position}"
        yield from (f"{name}-{index}" for index in range(cluster.size or size))


def _first(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"


def _quoted(text: str) -> str:
    """Return a basic string of TOML: JSON's, but TOML has DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
