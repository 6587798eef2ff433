"""The configuration of the brokers, written from the allocation before any of them starts.

The inner Flux is told what it has, it does not look: what ``hwloc`` finds in a pod is the whole node. Each host has the cores and GPUs
that its pod was granted, mixed nodes included; where more brokers may come later (``maxSize``), they stand there too, with the share that
every pod of the template asks for, because Flux reads its resources once.

Two things follow. Verification is off: it compares with what hwloc finds and would drain every host that has a share of its node, and every
host whose cpus are hardware threads. And core ids are counted from 0 on each host, so they are places in a count, not cores of the machine:
tasks are not bound to them (`AFFINITY`), or two pods of one node would share their first cores and leave the others idle.

flux-core ignores tables it does not know, but dies of an unknown key in ``[bootstrap]``: only keys of all versions are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from fluxqueue.api import hostlists
from fluxqueue.api.graphnames import GPU, resource_type
from fluxqueue.api.miniclusters import Bursting, FluxSpec, LeadBroker, MiniClusterSpec
from fluxqueue.minicluster.naming import Identity

__all__ = ["AFFINITY", "CLUSTER_DOMAIN", "PORT", "Share", "configuration", "hosts", "share_of"]

PORT = 8050
CLUSTER_DOMAIN = "cluster.local"

AFFINITY = """\
-- Cores are counted from 0 in each pod, so their numbers are not those of the machine: tasks are not bound, unless it is asked for.
if shell.options["cpu-affinity"] == nil then
    shell.options["cpu-affinity"] = "off"
end
"""


@dataclass(frozen=True, slots=True)
class Share:
    """What one broker has: whole cores and GPUs."""

    cores: int
    gpus: int = 0


def share_of(requests: Mapping[str, Decimal], node_cpus: Decimal | None = None) -> Share:
    """What a broker may use, from what its container was granted.

    Parameters
    ----------
    requests
        Of the container that runs Flux, by Kubernetes resource name in base units; sidecars have theirs for themselves.
    node_cpus
        Allocatable cpus of its node: a container that asks for no cpu may use whatever is idle there.

    Returns
    -------
    Share
        Whole cores, rounded down, at least one: a broker without any could never run a task.
    """
    cpus = requests.get("cpu") or node_cpus or Decimal(1)
    gpus = sum((amount for name, amount in requests.items() if resource_type(name) == GPU), Decimal(0))
    return Share(max(1, int(cpus)), int(gpus))


def hosts(identity: Identity, spec: MiniClusterSpec) -> list[str]:
    """The hosts of an instance; entry i is rank i.

    Parameters
    ----------
    identity
        Whose pods they are.
    spec
        For how many there may be, and for brokers that others start (``flux.bursting``).

    Returns
    -------
    list of str
        Short names, as the pods have them.
    """
    own = [identity.host(index) for index in range(spec.maximum)]
    bursting = spec.flux.bursting
    if bursting is None:
        return own
    if bursting.hostlist:
        return hostlists.decode(bursting.hostlist)
    lead = [f"{bursting.lead_broker.name}-{index}" for index in range(bursting.lead_broker.size)] if bursting.lead_broker else []
    return [*lead, *own, *_burst(bursting, spec.size)]


def configuration(
    identity: Identity,
    spec: MiniClusterSpec,
    shares: Sequence[Share],
    cluster_domain: str = CLUSTER_DOMAIN,
    *,
    guests: bool = False,
) -> str:
    """Write ``broker.toml``.

    Parameters
    ----------
    identity
        Whose brokers they are.
    spec
        Queue policy, topology, time-out, bursting, or the whole text (``flux.brokerConfig``).
    shares
        Of the pods 0, 1, ... that have an allocation; hosts beyond it get the last one's.
    cluster_domain
        Of the Kubernetes cluster's DNS.
    guests
        Whether other users than the brokers' may look at the instance; root is taken for its owner always.

    Returns
    -------
    str
        TOML.
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
    lines += _resources(members, _placed(identity, members, shares))
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


def _placed(identity: Identity, members: Sequence[str], shares: Sequence[Share]) -> dict[str, Share]:
    """The share of every host: those of our pods by their index, of hosts that others start and pods still to come the last."""
    last = shares[-1] if shares else Share(1)
    known = {identity.host(index): share for index, share in enumerate(shares)}
    return {member: known.get(member, last) for member in members}


def _resources(members: Sequence[str], placed: Mapping[str, Share]) -> list[str]:
    lines: list[str] = []
    for share in dict.fromkeys(placed[member] for member in members):
        alike = hostlists.encode(member for member in members if placed[member] == share)
        lines += ["", "[[resource.config]]", f"hosts = {_quoted(alike)}", f"cores = {_quoted(_first(share.cores))}"]
        if share.gpus:
            lines.append(f"gpus = {_quoted(_first(share.gpus))}")
    return lines


def _burst(bursting: Bursting, size: int) -> Iterable[str]:
    for place, cluster in enumerate(bursting.clusters or ()):
        name = cluster.name or f"burst-{place}"
        yield from (f"{name}-{index}" for index in range(cluster.size or size))


def _first(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
