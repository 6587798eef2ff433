"""The names that the pods of an agent have for each other, as lines of /etc/hosts.

As the DNS of a cluster does, a headless Service gives names to its pods:
``NAME.SERVICE.NAMESPACE.svc.cluster.local`` for a pod with that host name and subdomain, and each Service is
a name for its ready pods. A Service's name leads to the pods themselves, whether it has a cluster IP or not:
nothing translates addresses or ports here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluxqueue.api.metadata import ObjectMeta, PartialObject

__all__ = ["NamedPod", "Service", "hosts_file", "service_lines"]


class _ServiceSpec(PartialObject, frozen=True):
    selector: dict[str, str] | None = None
    publish_not_ready_addresses: bool = False


class Service(PartialObject, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ServiceSpec = _ServiceSpec()


@dataclass(frozen=True)
class NamedPod:
    """A pod with an address."""

    namespace: str
    name: str
    address: str
    hostname: str
    subdomain: str
    labels: Mapping[str, str]
    ready: bool


def hosts_file(pod: NamedPod, lines: str) -> str:
    """Return the hosts file of a pod; ``lines`` are those of its namespace (`service_lines`)."""
    return f"127.0.0.1 localhost\n{pod.address} {pod.hostname}\n{lines}"


def service_lines(asking: str, pods: Iterable[NamedPod], services: Iterable[Service]) -> str:
    """Return the lines that all pods of a namespace have in their hosts files."""
    lines = []
    known = sorted(pods, key=lambda each: (each.namespace, each.name))
    for service in sorted(services, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        selector, where = service.spec.selector, service.metadata.namespace
        if not selector:
            continue
        for each in known:
            if each.namespace != where or any(
                each.labels.get(key) != value for key, value in selector.items()
            ):
                continue
            if not (each.ready or service.spec.publish_not_ready_addresses):
                continue
            names = _names(service.metadata.name, where, asking)
            own = (
                [f"{each.hostname}.{name}" for name in names]
                if each.subdomain == service.metadata.name
                else []
            )
            lines.append(" ".join([each.address, *own, *names]) + "\n")
    return "".join(lines)


def _names(service: str, namespace: str, asking: str) -> list[str]:
    short = f"{service}.{namespace}"
    return [f"{short}.svc.cluster.local", f"{short}.svc", short, *([service] if namespace == asking else [])]
