"""Finds an installation of the chart: its namespace, its release and the prefix of its names.

The Deployment of the queue shows all three, and so does its ServiceAccount, which goes last. A webhook
configuration that was left alone shows the release. Where nothing is left of a release, the names that were
given or the defaults say where its Lease, its Secrets and its volume claim are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from fluxqueue.api.clusterobjects import WebhookConfiguration
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.uninstall.held_work import pages
from fluxqueue.kube.kinds import DEPLOYMENTS, MUTATING_WEBHOOKS, SERVICE_ACCOUNTS, Kind
from fluxqueue.kube.transport import Api

__all__ = ["Installation", "SeveralInstallations", "find_installation"]

_WEBHOOK = "mutate.fluxqueue.jobs.converged-computing.org"
_NAME = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
_RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
_CHART = "fluxqueue"
_NAMESPACE = "fluxqueue-system"
_LONGEST = 40


class SeveralInstallations(Exception):
    """There is more than one installation; the message says how to choose."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation of the chart.

    Attributes
    ----------
    namespace, release
        Of Helm, or what the labels of the objects say.
    prefix
        The first part of the names of its objects.
    name
        Value of the label ``app.kubernetes.io/name``.
    exists
        False if no object of it was found.
    """

    namespace: str
    release: str
    prefix: str
    name: str = _CHART
    exists: bool = True

    @property
    def selector(self) -> str:
        """Selects the objects of the chart."""
        return f"{_NAME}={self.name},{_INSTANCE}={self.release}"

    @property
    def leases(self) -> tuple[str, str]:
        """Names of the Leases of the queue and of the scheduler."""
        return f"{self.prefix}-queue", f"{self.prefix}-scheduler"

    @property
    def certificates(self) -> tuple[str, ...]:
        """Names of the Secrets that the queue or cert-manager creates."""
        programs = ("webhook", "queue", "scheduler", "dashboard", "postgres")
        return (*(f"{self.prefix}-{program}-tls" for program in programs), f"{self.prefix}-ca")

    def has(self, meta: ObjectMeta) -> bool:
        """True if the labels of an object say that it belongs to this installation."""
        return (meta.label(_NAME), meta.label(_INSTANCE)) == (self.name, self.release)


async def find_installation(api: Api, namespace: str = "", release: str = "") -> Installation:
    """Find the installation.

    Parameters
    ----------
    api
        The cluster.
    namespace, release
        What the user gave; empty if it is to be found.

    Raises
    ------
    SeveralInstallations
        There are several, and the names that were given do not choose one.
    """
    found: dict[tuple[str, str], Installation] = {}
    for kind, suffix, selector in (
        (DEPLOYMENTS, "-queue", "app.kubernetes.io/component=queue"),
        (SERVICE_ACCOUNTS, "-queue", "app.kubernetes.io/component=queue"),
        (MUTATING_WEBHOOKS, "-webhook", None),
    ):
        async for installation in _seen(api, kind, suffix, selector):
            if not installation.namespace:  # a cluster-scoped object that Helm did not install
                if any(known.release == installation.release for known in found.values()):
                    continue
                installation = replace(installation, namespace=namespace or _NAMESPACE)
            if namespace in ("", installation.namespace) and release in ("", installation.release):
                found.setdefault((installation.namespace, installation.release), installation)
    if len(found) > 1:
        listed = ", ".join(f"{one.release} in {one.namespace}" for one in found.values())
        raise SeveralInstallations(
            f"there are several installations ({listed}): choose one with --system-namespace and --release"
        )
    for installation in found.values():
        return installation
    chosen = release or _CHART
    prefix = (chosen if _CHART in chosen else f"{chosen}-{_CHART}")[:_LONGEST].rstrip("-")
    return Installation(namespace or _NAMESPACE, chosen, prefix, exists=False)


async def _seen(api: Api, kind: Kind[Any], suffix: str, selector: str | None) -> AsyncIterator[Installation]:
    async for page in pages(api, kind, label_selector=selector):
        for obj in page.items:
            meta = obj.metadata
            name, release = meta.label(_NAME), meta.label(_INSTANCE)
            if not name or not release or not meta.name.endswith(suffix) or not _is_ours(obj):
                continue
            namespace = meta.namespace or meta.annotation(_RELEASE_NAMESPACE) or ""
            yield Installation(namespace, release, meta.name.removesuffix(suffix), name)


def _is_ours(obj: Any) -> bool:
    """True if an object is of this chart: nobody else's webhook has our name,
    and the chart's name is in its label.
    """
    if isinstance(obj, WebhookConfiguration):
        return any(webhook.name == _WEBHOOK for webhook in obj.webhooks or ())
    return _CHART in (obj.metadata.label("helm.sh/chart") or "")
