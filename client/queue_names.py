"""Whether the queue that work names exists, asked once for each name
(`fluxqueue.api.typedvalues.queue_problem`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxqueue.api import names
from fluxqueue.api.typedvalues import queue_problem
from fluxqueue.client.errors import InvalidWork, translated
from fluxqueue.client.submissions import Submission
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.queue_names import known_queues

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
        self._known: frozenset[str] = frozenset({names.DEFAULT_QUEUE})

    async def check_work(self, unit: Submission) -> None:
        """Check the queue that a unit of work names; one that names none is in that of its namespace.

        Raises
        ------
        InvalidWork
            There is no such queue; the message has those that exist.
        FluxQueueError
            The API server does not answer.
        """
        for manifest in unit.manifests:
            if (queue := _queue_of(manifest)) is not None:
                await self.check(queue, f"{unit.kind} {unit.name}: ")

    async def check(self, queue: str, title: str = "") -> None:
        """Check a queue; ``title`` begins the message. Raises as `check_work`."""
        if queue in self._known:
            return
        try:
            known = await known_queues(self._api)
        except ApiError as error:
            raise translated(error) from None
        self._known |= known or frozenset()
        if (problem := queue_problem(queue, known)) is not None:
            raise InvalidWork(f"{title}queue: {problem}")


def _queue_of(manifest: dict[str, object]) -> str | None:
    spec, meta = manifest.get("spec"), manifest.get("metadata")
    if manifest.get("kind") == "MiniCluster":
        queue = spec.get("queue") if isinstance(spec, dict) else None
    else:
        queue = (meta.get("labels") or {}).get(names.QUEUE_LABEL) if isinstance(meta, dict) else None
    return str(queue) if queue else None
