"""Which FluxQueues exist, as far as admission knows: for a warning to who names one that does not.

Work of a queue that does not exist waits until there is one, and the reason is on its FluxJob, which nobody
reads who has mistyped a name. So the person is told at once. A watch keeps the names
(`fluxqueue.webhook.watch`). While they are unknown, no queue is said to be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.typedvalues import meant_queue

__all__ = ["KnownQueues"]


@dataclass(slots=True)
class KnownQueues:
    """The names of the FluxQueues.

    Attributes
    ----------
    listed
        Returns the names of all FluxQueues; None while they are not known. The watch sets it.
    """

    listed: Callable[[], frozenset[str] | None] = lambda: None

    def warning(self, where: str, queue: str | None) -> str | None:
        """Return that the queue which an object names does not exist; None if it does, or if that is not
        known.

        Who asks may not be allowed to read the queues, so no other name is told than the one that may be
        meant.

        Parameters
        ----------
        where
            The label or field that names it.
        queue
            What it says; None or empty: nothing.
        """
        known = self.listed() if queue and queue != names.DEFAULT_QUEUE else None
        if not queue or known is None or queue in known:
            return None
        missing = f"there is no queue {queue!r}, so it waits until there is"
        return f"{where}: {missing}: {meant_queue(queue, known)}kubectl fluxqueue queues lists them"
