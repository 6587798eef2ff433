"""After `hold` and `release`: waits until the queue shows that it has read the edit, so that the next list of
jobs is true.

An edit is in the FluxJob at once, and in its state when the queue has stored it, a second later or, while
much starts, several. Until then the queue may start what somebody has just held.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.reasons import REASONS
from fluxqueue.cli.api_client import ApiClient, ClusterError, ObjectNotFound
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import collection
from fluxqueue.cli.tables import printable

__all__ = ["await_hold"]

_WAIT_S = 15.0
_POLL_S = 0.2
_MOST = 20
"""Of many that are edited, the last ones are waited for: the queue reads edits in their order."""
_BEFORE_HELD: Final = frozenset(
    str(reason)
    for reason, facts in REASONS.items()
    if facts.urgency is not None and facts.urgency <= (REASONS[Reason.HELD].urgency or 0)
)
"""Reasons that are shown in place of a hold, or for it."""


def await_hold(client: ApiClient, jobs: Sequence[FluxJob], out: TextIO, *, hold: bool) -> None:
    """Wait until FluxJobs show that they are held, or are not any more; say so of those that do not in time.

    Raises
    ------
    ClusterError
        Work was started before the queue had read that it is held.
    """
    left, deadline, started = list(jobs[-_MOST:]), time.monotonic() + _WAIT_S, list[str]()
    while left:
        left = [
            now
            for job in left
            if (now := _read(client, job)) is not None and not _is_shown(now, started, hold=hold)
        ]
        if left and time.monotonic() > deadline:
            break
        time.sleep(_POLL_S if left else 0)
    late = (
        f"the queue has not read this within {_WAIT_S:g} s; kubectl fluxqueue version shows whether it runs"
    )
    out.writelines(f"{_title(job)}: {late}\n" for job in left)
    if started:
        raise ClusterError(
            "\n".join(
                f"error: {title} was started before the queue read that it is held" for title in started
            )
        )


def _is_shown(job: FluxJob, started: list[str], *, hold: bool) -> bool:
    if state_of(job) != State.PENDING:
        if hold:
            started.append(_title(job))
        return True
    return job.status.reason in _BEFORE_HELD if hold else job.status.reason != Reason.HELD


def _read(client: ApiClient, job: FluxJob) -> FluxJob | None:
    """Return a FluxJob as it is now; None if it is gone."""
    path = f"{collection(names.FLUXJOBS, job.metadata.namespace)}/{job.metadata.name}"
    try:
        return msgspec.json.decode(client.get(path), type=FluxJob)
    except ObjectNotFound:
        return None


def _title(job: FluxJob) -> str:
    return printable(object_name(job) or job.metadata.name)
