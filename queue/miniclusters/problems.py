"""Why a MiniCluster cannot be created as written, or an edit of it cannot be applied.

The problems are only in memory: a new leader finds each of them again. People read them in the status, and
those that come up while objects are created also in an Event.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import MINICLUSTERS
from fluxqueue.minicluster.rules import find_problems
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.miniclusters.owned_objects import NameConflict

__all__ = ["KnownProblems"]


class KnownProblems:
    """The problems of each MiniCluster, by its uid."""

    def __init__(self, caches: Caches, recorder: EventRecorder) -> None:
        self._caches = caches
        self._recorder = recorder
        self._refusals: dict[str, str] = {}
        self._conflicts: dict[str, NameConflict] = {}
        self._invalid: dict[str, tuple[int, tuple[str, ...]]] = {}

    def of(self, minicluster: MiniCluster) -> tuple[str, ...]:
        """Return all problems, for its status."""
        meta = minicluster.metadata
        problems = list(self.invalid(minicluster))
        if not self._caches.manages(meta.namespace):
            remedy = f"kubectl label namespace {meta.namespace} {names.MANAGED_LABEL}=true lets it be queued"
            problems.insert(0, f"namespace {meta.namespace} is not managed: {remedy}")
        if (refusal := self._refusals.get(meta.uid)) is not None:
            problems.append(refusal)
        if (conflict := self._conflicts.get(meta.uid)) is not None and not conflict.orphaned:
            problems.append(str(conflict))
        return tuple(problems)

    def invalid(self, minicluster: MiniCluster) -> tuple[str, ...]:
        """Return what is wrong with its spec; checked once for each generation,
        because the check renders its objects.
        """
        meta = minicluster.metadata
        generation, problems = self._invalid.get(meta.uid, (-1, ()))
        if generation != meta.generation:
            problems = find_problems(minicluster).errors
            self._invalid[meta.uid] = (meta.generation, problems)
        return problems

    def conflict(self, minicluster: MiniCluster) -> NameConflict | None:
        """Return the object of another owner that has the name of one of its objects, if one is known."""
        return self._conflicts.get(minicluster.metadata.uid)

    def add_conflict(self, minicluster: MiniCluster, conflict: NameConflict) -> None:
        """Record a name conflict; a new one that does not end by itself is also an Event."""
        uid = minicluster.metadata.uid
        before, self._conflicts[uid] = self._conflicts.get(uid), conflict
        if not conflict.orphaned and (before is None or before.uid != conflict.uid):
            self.warn(minicluster, "Refused", str(conflict))

    def remove_conflict(self, minicluster: MiniCluster) -> bool:
        """Remove the name conflict; True if there was one."""
        return self._conflicts.pop(minicluster.metadata.uid, None) is not None

    def refuse(self, minicluster: MiniCluster, reason: str) -> None:
        """Record that its spec cannot be realised; a new reason is also an Event."""
        uid = minicluster.metadata.uid
        if self._refusals.get(uid) != reason:
            self._refusals[uid] = reason
            self.warn(minicluster, "Refused", reason)

    def accept(self, minicluster: MiniCluster) -> None:
        """Remove the refusal."""
        self._refusals.pop(minicluster.metadata.uid, None)

    def forget(self, uid: str) -> None:
        """Remove all problems of a MiniCluster that is deleted."""
        self._refusals.pop(uid, None)
        self._conflicts.pop(uid, None)
        self._invalid.pop(uid, None)

    def warn(self, minicluster: MiniCluster, reason: str, message: str) -> None:
        """Send a warning Event about a MiniCluster."""
        meta = minicluster.metadata
        subject = Subject(MINICLUSTERS.api_version, "MiniCluster", meta.namespace, meta.name, meta.uid)
        self._recorder.record(subject, reason, message, severity=Severity.WARNING)
