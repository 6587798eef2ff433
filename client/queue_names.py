"""Whether the queue that work names exists, asked once for each name.

Work in a queue that does not exist would wait for ever, with a reason that nobody reads until then. A person who may not read FluxQueues is
not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxqueue.api import names
from fluxqueue.api.typedvalues import no_such_queue
from fluxqueue.client.errors import InvalidWork, translated
from fluxqueue.client.submissions import Submission
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXQUEUES

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["QueueNames"]


class QueueNames:
    """The queues that are known to exist.

    Parameters
    ----------
    api
        The API server.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known = {names.DEFAULT_QUEUE}

    async def check(self, unit: Submission) -> None:
        """Check the queue that a unit of work names; one that names none is in that of its namespace.

        Raises
        ------
        InvalidWork
            There is no such queue; the message has those that exist.
        FluxQueueError
            The API server does not answer.
        """
        for manifest in unit.manifests:
            queue = _queue_of(manifest)
            if queue is not None and not await self.exists(queue):
                raise InvalidWork(f"{unit.kind} {unit.name}: queue: {self.missing(queue)}")

    async def exists(self, queue: str) -> bool:
        """Return True if there is a queue of this name, or if the person may not know it."""
        if queue in self._known:
            return True
        try:
            self._known |= {each.metadata.name for each in await self._api.list(FLUXQUEUES)}
        except (Forbidden, NotFound):
            return True
        except ApiError as error:
            raise translated(error) from None
        return queue in self._known

    def missing(self, queue: str) -> str:
        """Return that a queue does not exist, with those that do."""
        return no_such_queue(queue, self._known)


def _queue_of(manifest: dict[str, object]) -> str | None:
    spec, meta = manifest.get("spec"), manifest.get("metadata")
    if manifest.get("kind") == "MiniCluster":
        queue = spec.get("queue") if isinstance(spec, dict) else None
    else:
        queue = (meta.get("labels") or {}).get(names.QUEUE_LABEL) if isinstance(meta, dict) else None
    return str(queue) if queue else None
