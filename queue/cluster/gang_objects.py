"""Watches the objects of other projects in which the sizes of gangs are: PodGroups, MPIJobs, RayClusters and
so on.

Which of them a cluster has is found by discovery, again and again: a CRD that is installed later is noticed
within half a minute, one that is deleted is followed no more. Only the few fields are decoded that
`fluxqueue.queue.model.sources` names.

A failure of one resource concerns only its gangs. The readiness of the queue does not depend on any of them:
what the queue must not read, or what no object fits, is an answer (`Lookup`) that its gangs wait with.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from fluxqueue.api.metadata import PartialObject
from fluxqueue.kube.decoding import decode
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.queue.model.sources.gang_sources import GangSource, Resource
from fluxqueue.queue.model.sources.registry import SOURCES

__all__ = ["GangObjects", "Lookup", "Readable"]

log = structlog.get_logger()

_DISCOVERY_S = (20.0, 30.0)
"""Shortest and longest time between two discoveries; drawn, so that replicas do not ask together."""


class Readable(enum.Enum):
    """Whether the objects of a source can be read."""

    NOT_YET = enum.auto()
    """It is not known yet, or the first list is still to come."""
    YES = enum.auto()
    NOT_SERVED = enum.auto()
    """The cluster does not have its CRD."""
    FORBIDDEN = enum.auto()
    """The queue must not list its objects."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer to the question for one object.

    Attributes
    ----------
    readable
        Whether objects of this source can be read at all.
    obj
        As it is now; None if there is none.
    problem
        Why an object that exists could not be decoded; empty otherwise.
    """

    readable: Readable
    obj: Any = None
    problem: str = ""


class _Version(PartialObject, frozen=True):
    group_version: str = ""


class _Group(PartialObject, frozen=True):
    versions: list[_Version] | None = None


class _Groups(PartialObject, frozen=True):
    groups: list[_Group] | None = None


class _ServedResource(PartialObject, frozen=True):
    name: str = ""


class _ServedResources(PartialObject, frozen=True):
    resources: list[_ServedResource] | None = None


class _Served:
    """What the cluster serves at one time: its groups are asked for once,
    and each version of one that it has.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._group_versions: frozenset[str] | None = None
        self._resources: dict[str, frozenset[str]] = {}

    async def version(self, resource: Resource, *, listed: bool = True) -> str:
        """Return the preferred version in which the cluster serves a resource; empty if it does not.

        An API server that has just started lists no group of a CRD for some moments. It does not answer 404
        for one before it knows all. So with ``listed=False`` it is asked for each version, whether or not it
        lists that.
        """
        if self._group_versions is None:
            found = decode(await self._api.request("GET", "/apis"), _Groups, "get /apis")
            self._group_versions = frozenset(
                each.group_version for group in found.groups or () for each in group.versions or ()
            )
        for version in resource.versions:
            group_version = f"{resource.group}/{version}"
            if (
                group_version in self._group_versions or not listed
            ) and resource.plural in await self._resources_of(group_version):
                return version
        return ""

    async def _resources_of(self, group_version: str) -> frozenset[str]:
        if group_version not in self._resources:
            path = f"/apis/{group_version}"
            try:
                served = decode(await self._api.request("GET", path), _ServedResources, f"get {path}")
            except NotFound:  # it went meanwhile
                served = _ServedResources()
            self._resources[group_version] = frozenset(each.name for each in served.resources or ())
        return self._resources[group_version]


@dataclass(slots=True)
class _Followed:
    """One resource: its cache, and what is known of it."""

    resource: Resource
    cache: ObjectCache[Any] = field(default_factory=ObjectCache)
    readable: Readable = Readable.NOT_YET
    version: str = ""
    reflector: Reflector[Any] | None = None
    task: asyncio.Task[None] | None = None
    refused: bool = False
    """It was forbidden to watch it when that was looked at last."""

    def is_read(self) -> bool:
        """True while it is watched; not if that was forbidden the last time too:
        a server that starts refuses for a moment.
        """
        before, self.refused = (
            self.refused,
            self.reflector is not None and isinstance(self.reflector.last_error, Forbidden),
        )
        return self.task is not None and not self.task.done() and not (before and self.refused)


class GangObjects:
    """The objects of all sources."""

    def __init__(self, api: Api, sources: Iterable[GangSource] = SOURCES) -> None:
        self._api = api
        self._followed = {
            source.name: _Followed(source.resource) for source in sources if source.resource is not None
        }
        self._handlers: list[Callable[[str, str, str], None]] = []
        for name, followed in self._followed.items():
            followed.cache.add_handler(self._notifier(name))

    def add_handler(self, handler: Callable[[str, str, str], None]) -> None:
        """Call a function with source, namespace and name of each object that appears, changes or goes;
        both empty: of all of a source.
        """
        self._handlers.append(handler)

    def notify(self, source: str, namespace: str, name: str) -> None:
        """Have the gangs read again that depend on an object; parameters as in `add_handler`."""
        for handler in self._handlers:
            handler(source, namespace, name)

    def cache(self, source: str) -> ObjectCache[Any]:
        """Return the cache of a source's objects; raises KeyError for a source without any."""
        return self._followed[source].cache

    def find(self, source: GangSource, namespace: str, name: str) -> Lookup:
        """Return an object of a source."""
        followed = self._followed.get(source.name)
        if followed is None:
            return Lookup(Readable.YES)
        if (
            followed.readable is Readable.NOT_YET
            and followed.reflector is not None
            and followed.reflector.synced.is_set()
        ):
            followed.readable = Readable.YES
        problem = (
            followed.reflector.undecodable.get((namespace, name), "")
            if followed.reflector is not None
            else ""
        )
        return Lookup(followed.readable, followed.cache.get(namespace, name), problem)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                served = _Served(self._api)
                for name, followed in self._followed.items():
                    try:
                        await self._discover(name, followed, served)
                    except ApiError as error:
                        log.info(
                            "gang_objects.undiscovered", resource=followed.resource.name, error=str(error)
                        )
                await asyncio.sleep(random.uniform(*_DISCOVERY_S))
        finally:
            for followed in self._followed.values():
                if followed.task is not None:
                    followed.task.cancel()

    async def _discover(self, name: str, followed: _Followed, served: _Served) -> None:
        """Begin or end to watch one resource, if the cluster serves it now, or does no more."""
        version = await served.version(followed.resource)
        if not version and followed.readable is not Readable.NOT_SERVED:
            version = await served.version(followed.resource, listed=False)
        if version == followed.version and followed.is_read():
            return
        self._stop(followed)
        if not version:
            self._set(name, followed, Readable.NOT_SERVED)
            return
        kind = _kind(followed.resource, version)
        try:
            await self._api.page(
                kind, None, label_selector=None, field_selector=None, limit=1, continue_token=""
            )
        except Forbidden as error:
            before, followed.refused = followed.refused, True
            if not before:
                return  # a server that starts refuses for a moment: it is asked again with the next discovery
            if followed.readable is not Readable.FORBIDDEN:
                log.warning("gang_objects.forbidden", resource=followed.resource.name, error=str(error))
            self._set(name, followed, Readable.FORBIDDEN)
            return
        except NotFound:
            return  # it was deleted meanwhile
        followed.version, followed.refused = version, False
        followed.reflector = Reflector(self._api, kind, followed.cache)
        followed.readable = Readable.NOT_YET
        followed.task = asyncio.create_task(self._follow(name, followed, followed.reflector))
        log.info("gang_objects.followed", resource=followed.resource.name, version=version)

    async def _follow(self, name: str, followed: _Followed, reflector: Reflector[Any]) -> None:
        watching = asyncio.create_task(reflector.run())
        try:
            await reflector.synced.wait()
            self._set(name, followed, Readable.YES)
            await watching
        finally:
            watching.cancel()

    def _stop(self, followed: _Followed) -> None:
        """End to watch a resource, and forget its objects: nothing is known of them until what follows is."""
        former, followed.task, followed.reflector, followed.version = followed.task, None, None, ""
        if former is not None:
            followed.readable = Readable.NOT_YET
            former.cancel()
            followed.cache.replace([])

    def _set(self, name: str, followed: _Followed, readable: Readable) -> None:
        """Note what is known of a resource, and have all its gangs read again if that is new."""
        if followed.readable is not readable:
            followed.readable = readable
            self.notify(name, "", "")

    def _notifier(self, name: str) -> Callable[[Change[Any]], None]:
        def changed(change: Change[Any]) -> None:
            old, new = change.old, change.new
            if old is None or new is None or _content(old) != _content(new):
                self.notify(name, change.obj.metadata.namespace, change.obj.metadata.name)

        return changed


def _kind(resource: Resource, version: str) -> Kind[Any]:
    return Kind(resource.group, version, resource.plural, resource.kind, True, resource.struct)


def _content(obj: Any) -> tuple[Any, ...]:
    """Return what gangs depend on; a status that is not decoded changes often."""
    meta = obj.metadata
    return meta.labels, meta.annotations, meta.deletion_timestamp, obj.spec, getattr(obj, "status", None)
