"""Removes the objects of an installation, in an order in which none of them acts on held work any more.

Objects of the chart are found by their labels, so it does not matter whether Helm installed them, or whether
Helm has removed some of them. What the programs created has names that follow from those of the chart.
Objects that Helm is told to keep are removed only if the user asks for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any

from fluxqueue.api import names
from fluxqueue.cli.uninstall.held_work import pages, run_bounded
from fluxqueue.cli.uninstall.installation import Installation
from fluxqueue.kube import kinds
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.kinds import Key, Kind
from fluxqueue.kube.transport import Api

__all__ = ["ADMISSION", "OTHERS", "POLICIES", "PROGRAMS", "QueueStillRuns", "Removal"]

ADMISSION = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)
POLICIES = (kinds.VALIDATING_POLICY_BINDINGS, kinds.VALIDATING_POLICIES)
PROGRAMS = (kinds.DISRUPTION_BUDGETS, kinds.DEPLOYMENTS)
OTHERS = (
    kinds.STATEFULSETS,
    kinds.CRON_JOBS,
    kinds.JOBS,
    kinds.SERVICE_MONITORS,
    kinds.POD_MONITORS,
    kinds.PROMETHEUS_RULES,
    kinds.CERTIFICATES,
    kinds.ISSUERS,
    kinds.NETWORK_POLICIES,
    kinds.SERVICES,
    kinds.CONFIG_MAPS,
    kinds.SECRETS,
    kinds.ROLE_BINDINGS,
    kinds.ROLES,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.CLUSTER_ROLES,
    kinds.PRIORITY_CLASSES,
    kinds.SERVICE_ACCOUNTS,
)
"""ServiceAccounts are last: a repeated command finds the installation by them."""

_KEEP = "helm.sh/resource-policy"
_COMPONENT = "app.kubernetes.io/component"
_BACKUP = "backup"
_POLL_S = 0.5
_CRDS = (
    f"{names.FLUXJOBS}.{names.GROUP}",
    f"{names.FLUXQUEUES}.{names.GROUP}",
    f"{names.FLUXACCOUNTS}.{names.GROUP}",
    f"{names.FLUXRESERVATIONS}.{names.GROUP}",
    f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}",
)


class QueueStillRuns(Exception):
    """The queue or the scheduler did not end in time; the message says which pods."""


class Removal:
    """Removes the objects of one installation; every method does nothing where nothing is left."""

    def __init__(self, api: Api, installation: Installation) -> None:
        self._api = api
        self._installation = installation

    async def find(self, kind: Kind[Any], *, kept: bool = False, dumps: bool = False) -> list[Key]:
        """Return the objects of the chart of one kind.

        Parameters
        ----------
        kind
            The kind.
        kept
            True for those that Helm is told to keep, instead of the others.
        dumps
            True for those of the backup, instead of the others, if the kind is that of volume claims.
        """
        found: list[Key] = []
        async for page in pages(self._api, kind, label_selector=self._installation.selector):
            for obj in page.items:
                meta = obj.metadata
                elsewhere = kind.namespaced and meta.namespace != self._installation.namespace
                if kind is kinds.CLAIMS and (meta.label(_COMPONENT) == _BACKUP) is not dumps:
                    continue
                if (
                    not elsewhere
                    and self._installation.has(meta)
                    and (meta.annotation(_KEEP) == "keep") is kept
                ):
                    found.append((meta.namespace if kind.namespaced else "", meta.name))
        return found

    async def remove(self, wanted: Sequence[Kind[Any]]) -> list[str]:
        """Delete the objects of the chart of these kinds; return their names."""
        removed: list[str] = []
        for kind in wanted:
            found = await self.find(kind)
            await run_bounded(self._delete(kind, key, removed) for key in found)
        return removed

    async def stop_programs(self, timeout_s: float) -> None:
        """Wait until no queue and no scheduler runs, and no Lease of theirs is valid.

        Raises
        ------
        QueueStillRuns
            After the time-out.
        """
        until = time.monotonic() + timeout_s
        while pods := await self._running():
            if time.monotonic() > until:
                raise QueueStillRuns(
                    f"{', '.join(pods)} did not end within {timeout_s:g} s: if its node is off, "
                    "delete it with 'kubectl delete pod --force', then repeat this command"
                )
            await asyncio.sleep(_POLL_S)
        for name in self._installation.leases:
            await self._lease_ends(name, until)

    async def _running(self) -> list[str]:
        installation = self._installation
        running = []
        for component in ("queue", "scheduler"):
            selector = f"{installation.selector},{_COMPONENT}={component}"
            pods = await self._api.list(kinds.PODS, installation.namespace, label_selector=selector)
            running += [
                f"Pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if not pod.terminal
            ]
        return running

    async def _lease_ends(self, name: str, until: float) -> None:
        """Wait until a Lease is not held, or has not been renewed for as long as it is valid."""
        seen: object = None
        since = time.monotonic()
        while True:
            try:
                lease = await self._api.get(kinds.LEASES, name, self._installation.namespace)
            except NotFound:
                return
            spec, now = lease.spec, time.monotonic()
            if (spec.holder_identity, spec.renew_time) != seen:
                seen, since = (spec.holder_identity, spec.renew_time), now
            if not spec.holder_identity or now - since > (spec.lease_duration_seconds or 0) + 1:
                return
            if now > until:
                raise QueueStillRuns(
                    f"Lease {self._installation.namespace}/{name} is still renewed by "
                    f"{spec.holder_identity}: "
                    "end that program, then repeat this command"
                )
            await asyncio.sleep(_POLL_S)

    async def remove_fluxjobs(self, of_kept: Collection[str]) -> int:
        """Delete the FluxJobs, except those of objects with these uids, and the requests for nodes;
        return how many FluxJobs.
        """
        removed: list[str] = []
        async for page in pages(self._api, kinds.FLUXJOBS):
            keys = [
                (job.metadata.namespace, job.metadata.name)
                for job in page.items
                if job.spec.object_ref.uid not in of_kept
            ]
            await run_bounded(self._delete(kinds.FLUXJOBS, key, removed) for key in keys)
        others: list[str] = []
        requests: tuple[Kind[Any], ...] = (kinds.PROVISIONING_REQUESTS, kinds.POD_TEMPLATES)
        for kind in requests:
            async for found in pages(self._api, kind, label_selector=names.PROVISIONS_LABEL):
                metas = [
                    obj.metadata
                    for obj in found.items
                    if obj.metadata.label(names.PROVISIONS_LABEL) is not None
                ]
                await run_bounded(self._delete(kind, (meta.namespace, meta.name), others) for meta in metas)
        own = self._installation.namespace
        for label in (names.ROOM_LABEL, names.KEEPS_LABEL):
            async for unbound in pages(self._api, kinds.PODS, label_selector=label):
                keys = [(own, pod.metadata.name) for pod in unbound.items if pod.metadata.namespace == own]
                await run_bounded(self._delete(kinds.PODS, key, others) for key in keys)
        return len(removed)

    async def remove_created(self) -> list[str]:
        """Delete the Leases and the Secrets of certificates, which the programs create;
        return their names.
        """
        removed: list[str] = []
        namespace = self._installation.namespace
        for name in self._installation.leases:
            await self._delete(kinds.LEASES, (namespace, name), removed)
        for name in self._installation.certificates:
            await self._delete(kinds.SECRETS, (namespace, name), removed)
        return removed

    async def data(self) -> list[str]:
        """Return the names of the volume claims and of the Secrets that open the database."""
        return [
            kind.describe(name, namespace) for kind, keys in await self._data() for namespace, name in keys
        ]

    async def dumps(self) -> list[str]:
        """Return the names of the volume claims with dumps of the database, which are never deleted here."""
        found = [
            *await self.find(kinds.CLAIMS, dumps=True),
            *await self.find(kinds.CLAIMS, kept=True, dumps=True),
        ]
        return [kinds.CLAIMS.describe(name, namespace) for namespace, name in found]

    async def remove_data(self) -> list[str]:
        """Delete them."""
        removed: list[str] = []
        for kind, keys in await self._data():
            await run_bounded(self._delete(kind, key, removed) for key in keys)
        return removed

    async def _data(self) -> list[tuple[Kind[Any], list[Key]]]:
        claims = [*await self.find(kinds.CLAIMS), *await self.find(kinds.CLAIMS, kept=True)]
        return [(kinds.CLAIMS, claims), (kinds.SECRETS, await self.find(kinds.SECRETS, kept=True))]

    async def definitions(self) -> list[str]:
        """Return the names of our CRDs that exist; that of MiniClusters only if fluxqueue serves it."""
        found = []
        for name in _CRDS:
            try:
                meta = (await self._api.get(kinds.CUSTOM_RESOURCES, name)).metadata
            except NotFound:
                continue
            if not name.startswith(names.MINICLUSTERS) or meta.label(names.OPERATOR_LABEL) == names.OPERATOR:
                found.append(name)
        return found

    async def remove_definitions(self) -> list[str]:
        """Delete them, and so every object of their kinds."""
        removed: list[str] = []
        for name in await self.definitions():
            await self._delete(kinds.CUSTOM_RESOURCES, ("", name), removed)
        return removed

    async def _delete(self, kind: Kind[Any], key: Key, removed: list[str]) -> None:
        namespace, name = key
        try:
            await self._api.delete(kind, name, namespace=namespace or None)
        except (NotFound, Conflict):
            return
        removed.append(kind.describe(name, namespace or None))
