"""What keeps a Flux cluster from being released although the queue could match it: a message for people, by
the uid of its Job.

The MiniCluster controller finds that one of the objects of a Flux cluster cannot be created: another owner
has an object of that name, or the request cannot be rendered. The intake reads the blocker with the Job: the
Job is not matched, so it holds no nodes, and its FluxJob has the message. Blockers are in memory only. A new
leader finds them again, at the latest when it releases the Job.

Nodes are no blockers: `fluxqueue.queue.release.object_release` checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fluxqueue.api.jobs import Job

__all__ = ["PreparationFailed", "ReleaseBlockers"]


class PreparationFailed(Exception):
    """What a Job's pods need cannot be created.
    The message has the reason, and it is stored as a blocker of the Job.
    """


@dataclass(frozen=True, slots=True)
class _Blocker:
    message: str
    generation: int | None


class ReleaseBlockers:
    """The known blockers."""

    def __init__(self) -> None:
        self._known: dict[str, _Blocker] = {}
        self._handlers: list[Callable[[str], None]] = []

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Have a handler called with the uid of each Job whose blocker is set, changed or cleared."""
        self._handlers.append(handler)

    def of(self, job: Job) -> str:
        """Return why a Job cannot be released; empty if nothing is known."""
        blocker = self._known.get(job.metadata.uid)
        return (
            blocker.message
            if blocker is not None and blocker.generation in (None, job.metadata.generation)
            else ""
        )

    def note(self, job: Job, message: str, *, until_edited: bool = False) -> None:
        """Set the blocker of a Job.

        Parameters
        ----------
        job
            The Job.
        message
            With the remedy.
        until_edited
            True if an edit of the Job removes it; else it stays until `clear`.
        """
        self._set(job.metadata.uid, _Blocker(message, job.metadata.generation if until_edited else None))

    def clear(self, uid: str) -> None:
        """Clear the blocker of a Job, if there is one."""
        self._set(uid, None)

    def _set(self, uid: str, blocker: _Blocker | None) -> None:
        if self._known.get(uid) == blocker:
            return
        if blocker is None:
            del self._known[uid]
        else:
            self._known[uid] = blocker
        for handler in self._handlers:
            handler(uid)
