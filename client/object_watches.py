"""One watch for everybody who waits for objects of a kind in a namespace: a thousand waits cost one request.

The watch starts with the first question and stays. Objects are found by keys. Those of a FluxJob are the uid
of its object, and its kind with its name, because the uid of what the caller submitted can be another one: a
MiniCluster's FluxJob belongs to its Job, a pod group's to no single pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import ENDED, FluxJob
from fluxqueue.api.pods import Pod
from fluxqueue.client.errors import FluxQueueError, NoCluster, NotInstalled, translated
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Undecodable
from fluxqueue.kube.kinds import FLUXJOBS, PODS, Kind, T
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api

__all__ = ["ObjectWatch", "watch_fluxjobs", "watch_pods"]

_INDEX = "key"
_REMEMBERED = 10_000
_SYNC_S = 60.0
_LOOK_S = 0.1


class ObjectWatch(Generic[T]):
    """The objects of a kind in one namespace, kept up to date.

    Parameters
    ----------
    api, kind, namespace
        What is watched.
    keys
        Returns the keys under which an object is found.
    label_selector
        Only these objects.
    ended
        True for the last state of an object, which is remembered when it is deleted.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind[T],
        namespace: str,
        keys: Callable[[T], Iterable[Hashable]],
        *,
        label_selector: str | None = None,
        ended: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._kind = kind
        self._namespace = namespace
        self._keys = keys
        self._has_ended = ended
        self._cache: ObjectCache[T] = ObjectCache()
        self._cache.add_index(_INDEX, keys)
        self._cache.add_handler(self._changed)
        self._reflector = Reflector(
            api, kind, self._cache, namespace=namespace, label_selector=label_selector
        )
        self._listeners: dict[Hashable, set[asyncio.Event]] = defaultdict(set)
        self._ended: OrderedDict[Hashable, T] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the watch, and wait until it is filled.

        Raises
        ------
        FluxQueueError
            It cannot be: no permission, no such kind in this cluster, no answer.
        """
        if self._task is None:
            self._task = asyncio.create_task(
                self._reflector.run(), name=f"watch {self._kind.plural} of {self._namespace}"
            )
        deadline = asyncio.get_running_loop().time() + _SYNC_S
        while not self._reflector.synced.is_set():
            self.check(late=asyncio.get_running_loop().time() > deadline)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._reflector.synced.wait()
        self.check()

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def check(self, *, late: bool = False) -> None:
        """Raise why changes cannot arrive: not for what passes by itself, such as a broken connection, unless
        it is `late`.

        A watch that has ended, because its client was closed or for a fault of its own, is never silent:
        nobody would hear of a change.
        """
        error = self._reflector.last_error
        if error is not None and (
            late or isinstance(error, Forbidden | Unauthorized | NotFound | Undecodable)
        ):
            raise self._explained(error)
        what = f"{self._kind.plural} of namespace {self._namespace}"
        if self._task is not None and self._task.done():
            ended = None if self._task.cancelled() else self._task.exception()
            cause = f"{type(ended).__name__}: {ended}" if ended is not None else "the client is closed"
            raise NoCluster(f"the watch of {what} has ended ({cause}): open another client")
        if late:
            raise NoCluster(
                f"the API server has not listed the {what} within {_SYNC_S:g} s: "
                "check the network (kubectl version), and try again"
            )

    def all(self, key: Hashable) -> list[T]:
        """Return the objects with a key."""
        return self._cache.by_index(_INDEX, key)

    def last_seen(self, key: Hashable) -> T | None:
        """Return an object that had ended before it was deleted."""
        return self._ended.get(key)

    @contextlib.contextmanager
    def listening(self, key: Hashable, event: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """Set an event (a new one, or this one) at each change of the objects with a key."""
        event = event or asyncio.Event()
        self._listeners[key].add(event)
        try:
            yield event
        finally:
            self._listeners[key].discard(event)
            if not self._listeners[key]:
                del self._listeners[key]

    def _changed(self, change: Change[T]) -> None:
        for key in self._keys(change.obj):
            if change.kind is ChangeKind.DELETED and self._has_ended(change.obj):
                self._ended[key] = change.obj
                self._ended.move_to_end(key)
                if len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)
            for event in self._listeners.get(key, ()):
                event.set()

    def _explained(self, error: ApiError) -> FluxQueueError:
        plural = self._kind.plural
        if isinstance(error, NotFound):
            return NotInstalled(
                f"the cluster has no {plural} ({error}): install fluxqueue, or choose another context"
            )
        needed = (
            f"the client lists and watches {plural} in namespace {self._namespace}, so ask for that right"
        )
        return translated(error, needed if isinstance(error, Forbidden) else "")


def watch_fluxjobs(api: Api, namespace: str) -> ObjectWatch[FluxJob]:
    """Return a watch of the FluxJobs of a namespace."""

    def keys(fluxjob: FluxJob) -> tuple[Hashable, ...]:
        ref = fluxjob.spec.object_ref
        return (ref.uid, (ref.kind, ref.name))

    def ended(fluxjob: FluxJob) -> bool:
        return fluxjob.status.state in ENDED

    return ObjectWatch(api, FLUXJOBS, namespace, keys, ended=ended)


def watch_pods(api: Api, namespace: str, label_selector: str) -> ObjectWatch[Pod]:
    """Return a watch of pods, which are found by the uid of their Job."""
    return ObjectWatch(
        api,
        PODS,
        namespace,
        lambda pod: (pod.metadata.label(names.CONTROLLER_UID_LABEL) or "",),
        label_selector=label_selector,
    )
