"""Reports on an object that work on it failed, if the failure is the object's own.

Nothing that one person applies may stop the work for others. So a controller continues with the other objects
and tries the failed one again alone. Its owner gets a warning Event with one sentence; the traceback is only
in the log. While the database or the API server is unavailable, no object is at fault, and nothing is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fluxqueue.kube.errors import NotLeading, ServerError, TooManyRequests, Unreachable
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.status.subjects import Subjects
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader

__all__ = ["EVENT", "FailureReporter", "failure_message"]

EVENT = "ProcessingFailed"
"""Reason of the Event."""
_LONGEST = 300
_NOT_THE_OBJECTS_FAULT = (
    DatabaseUnavailable,
    StaleLeader,
    Unreachable,
    ServerError,
    TooManyRequests,
    NotLeading,
)

K = TypeVar("K", bound=Hashable)


class FailureReporter(Generic[K]):
    """Sends the Events about failures of one controller.

    Parameters
    ----------
    recorder
        For Events; None sends none.
    action
        What failed, as a participle: ``taken in``.
    subjects
        Find the objects that a key names.
    """

    def __init__(self, recorder: EventRecorder | None, action: str, subjects: Subjects[K]) -> None:
        self._recorder = recorder
        self._action = action
        self._subjects = subjects

    def report(self, key: K, error: Exception) -> None:
        """Report that work on a key failed."""
        if self._recorder is None or isinstance(error, _NOT_THE_OBJECTS_FAULT):
            return
        for subject in self._subjects(key):
            self._recorder.record(
                subject, EVENT, failure_message(subject, self._action, error), severity=Severity.WARNING
            )

    def counting(self, name: str) -> Callable[[K, Exception], None]:
        """Make a function that also counts the failure:
        a work queue, unlike batches, does not count failures itself.
        """

        def count(key: K, error: Exception) -> None:
            OBJECT_FAILURES.labels(name).inc()
            self.report(key, error)

        return count


def failure_message(subject: Subject, action: str, error: Exception) -> str:
    """Return one sentence about an object on which work failed."""
    where = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
    cause = " ".join(str(error).split()) or type(error).__name__
    cause = cause if len(cause) <= _LONGEST else f"{cause[:_LONGEST]}..."
    return (
        f"{subject.kind} {where} could not be {action}: {cause}; it is tried again by itself, "
        "and the queue goes on without it"
    )
