"""The pin window: the time in which the node list of a released Job's template pins new pods.

A Job's template is immutable while the Job runs. So the node list that the release writes outlives its slots:
after a shrink a slot goes to another workload, its node may be drained, or other pods may fill it. Therefore
the release also writes until when the list is valid, as ``fluxqueue/pin-until``. The webhook pins pods that
are created before that time and gates all later ones, which the queue then releases one by one with current
data. The window is long enough for the first start of all pods, so that the first start needs no write per
pod.

Two clocks are compared: that of Postgres, from which the release takes the time, and the webhook's. So the
queue treats a window as open for `MARGIN` longer than the webhook does, and frees no listed slot until then.
Clocks may differ by that much, and a pod may be created that long after its admission.

A template that holds the one node of its pods (`fluxqueue.api.templatepins`) pins all of them, however late
they come: its window is always open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.templatepins import is_pinned

__all__ = ["DEFAULT_WINDOW_S", "MARGIN", "format_pin_until", "pin_until", "pin_window"]

MARGIN = timedelta(seconds=10)
DEFAULT_WINDOW_S = 30

_PER_POD = timedelta(milliseconds=50)
_PER_JOB = timedelta(milliseconds=100)
_LONGEST = timedelta(minutes=30)
_CLOSED = datetime.min.replace(tzinfo=UTC)
_OPEN = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


def pin_window(pods: int, shortest_s: float = DEFAULT_WINDOW_S, jobs_ahead: int = 0) -> timedelta:
    """Return how long the pods of a Job are pinned at their creation, at most 30 min.

    Parameters
    ----------
    pods
        Of the Job. Each adds 50 ms: the Job controller has 20 requests a second by default.
    shortest_s
        For a Job without pods.
    jobs_ahead
        Jobs that the Job controller has not looked at yet. Each adds 100 ms, for a pod and a status.
    """
    return min(timedelta(seconds=shortest_s) + pods * _PER_POD + jobs_ahead * _PER_JOB, _LONGEST)


def format_pin_until(at: datetime) -> str:
    """Format a time for the annotation: RFC 3339, whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pin_until(meta: ObjectMeta) -> datetime:
    """Return when the pin window of a pod or a pod template closes.

    Returns
    -------
    datetime
        With a time zone. The year 1 if the annotation is missing or is not a time, so that nothing is pinned.
        The year 9999 if the template itself holds the node.
    """
    if is_pinned(meta):
        return _OPEN
    text = meta.annotation(names.PIN_UNTIL_ANNOTATION) or ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return _CLOSED
    return at if at.tzinfo is not None else _CLOSED
