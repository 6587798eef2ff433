"""Which flavors of nodes a workload may use, and from when on.

The flavors of a queue are a part of the request (`fluxqueue.fluxion.match.flavors`), so the matcher, a new
leader and the records read them there. How long a workload has waited follows from the tables: since it was
submitted, or since the earliest start that its user allows. So nothing is stored when a flavor opens.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import orjson

from fluxqueue.fluxion.match.flavors import Flavor, read_flavors
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.remembered import remembered

__all__ = ["closed_flavors", "flavors_in", "waits_since_s"]

_WORD: Final = '"flavors"'
"""Is in each stored jobspec that has flavors."""


def flavors_in(jobspec: str) -> tuple[Flavor, ...]:
    """Return the flavors of a stored jobspec, in order; none for nearly every request."""
    return _flavors_in(jobspec) if _WORD in jobspec else ()


@remembered(4_096)
def _flavors_in(jobspec: str) -> tuple[Flavor, ...]:
    return read_flavors(orjson.loads(jobspec)["attributes"]["system"].get("flavors"))


def waits_since_s(workload: Workload) -> int:
    """Return since when a workload waits, in Unix seconds: rounded up, so that no flavor opens too early.
    0 for work without flavors, to which that does not matter.
    """
    if _WORD not in workload.jobspec:
        return 0
    not_before = workload.start_conditions.not_before
    return math.ceil(max(workload.submitted_at, not_before or workload.submitted_at).timestamp())


def closed_flavors(workload: Workload, now: datetime) -> tuple[tuple[Flavor, datetime], ...]:
    """Return the flavors that a workload may not use yet, each with the time from which on it may."""
    flavors = flavors_in(workload.jobspec)
    if not flavors:
        return ()
    since_s = waits_since_s(workload)
    opening = ((each, datetime.fromtimestamp(each.opens_at(since_s), UTC)) for each in flavors if each.wait_s)
    return tuple((each, at) for each, at in opening if at > now)
