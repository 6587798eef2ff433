"""One watch of the FluxJobs of a namespace, for everybody who waits in it: a thousand waits cost one request.

The watch starts with the first question and stays. FluxJobs are found by the uid of their object, and by its kind and name where the uid of
what the caller submitted is another one: a MiniCluster's FluxJob belongs to its Job, a pod group's to no single pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.client.errors import FluxQueueError, NotInstalled, translated
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Undecodable
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api

__all__ = ["FluxJobWatch", "keys_of"]

_INDEX = "object"
_REMEMBERED = 10_000
_SYNC_S = 60.0
_LOOK_S = 0.1


def keys_of(fluxjob: FluxJob) -> tuple[Hashable, ...]:
    """Return the keys under which a FluxJob is found."""
    ref = fluxjob.spec.object_ref
    return (ref.uid, (ref.kind, ref.name))


class FluxJobWatch:
    """The FluxJobs of one namespace, kept up to date.

    Parameters
    ----------
    api
        The API server.
    namespace
        The namespace.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._namespace = namespace
        self._cache: ObjectCache[FluxJob] = ObjectCache()
        self._cache.add_index(_INDEX, keys_of)
        self._cache.add_handler(self._changed)
        self._reflector = Reflector(api, FLUXJOBS, self._cache, namespace=namespace)
        self._listeners: dict[Hashable, set[asyncio.Event]] = defaultdict(set)
        self._ended: OrderedDict[Hashable, FluxJob] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the watch, and wait until it is filled.

        Raises
        ------
        FluxQueueError
            It cannot be: no permission, no FluxJobs in this cluster, no answer.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._reflector.run(), name=f"fluxjobs of {self._namespace}")
        deadline = asyncio.get_running_loop().time() + _SYNC_S
        while not self._reflector.synced.is_set():
            self.check(late=asyncio.get_running_loop().time() > deadline)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reflector.synced.wait(), _LOOK_S)
        self.check()

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def check(self, *, late: bool = False) -> None:
        """Raise why changes cannot arrive: not for what passes by itself, such as a broken connection, unless it is `late`."""
        error = self._reflector.last_error
        if error is not None and (late or isinstance(error, Forbidden | Unauthorized | NotFound | Undecodable)):
            raise _explained(error, self._namespace)

    def find(self, key: Hashable) -> FluxJob | None:
        """Return the FluxJob with a key, the newest if there are several."""
        found = self._cache.by_index(_INDEX, key)
        return max(found, key=lambda job: job.metadata.creation_timestamp or "", default=None)

    def last_seen(self, key: Hashable) -> FluxJob | None:
        """Return a FluxJob that had ended before it was deleted."""
        return self._ended.get(key)

    @contextlib.contextmanager
    def listening(self, key: Hashable) -> Iterator[asyncio.Event]:
        """Set an event at each change of the FluxJobs with a key."""
        event = asyncio.Event()
        self._listeners[key].add(event)
        try:
            yield event
        finally:
            self._listeners[key].discard(event)
            if not self._listeners[key]:
                del self._listeners[key]

    def _changed(self, change: Change[FluxJob]) -> None:
        for key in keys_of(change.obj):
            if change.kind is ChangeKind.DELETED and change.obj.status.state in (State.COMPLETED, State.FAILED, State.CANCELLED):
                self._ended[key] = change.obj
                self._ended.move_to_end(key)
                if len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)
            for event in self._listeners.get(key, ()):
                event.set()


def _explained(error: ApiError, namespace: str) -> FluxQueueError:
    if isinstance(error, NotFound):
        return NotInstalled(f"the cluster has no FluxJobs ({error}): install fluxqueue, or choose another context")
    return translated(
        error, f"the client needs to list and watch fluxjobs in namespace {namespace}" if isinstance(error, Forbidden) else ""
    )
