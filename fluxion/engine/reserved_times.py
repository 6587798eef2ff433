"""What the times of advance reservations mean for one request:
where it may be placed, and which of them keeps it from starting now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

from fluxqueue.fluxion.graph.jobs import ReservedTime
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.jobspec import Jobspec
from fluxqueue.fluxion.match.matcher import Matcher, Restriction
from fluxqueue.fluxion.match.state import GraphState

__all__ = ["anywhere", "in_the_way", "not_begun", "obstacle", "refusal_inside", "rooms"]


def rooms(
    state: GraphState,
    jobspec: Jobspec,
    exclude: Collection[Vertex] = frozenset(),
    only: Collection[Vertex] | None = None,
) -> Iterator[Restriction]:
    """Yield what a request is restricted to, in the order to try.

    That is what its caller says; for a request that names an advance reservation, each of its times that is
    not over.
    """
    if not jobspec.reservation:
        yield Restriction(exclude, only)
        return
    for time in state.reserved_times.get(jobspec.reservation, ()):
        if time.job.end > state.now:
            yield Restriction(exclude, time.nodes if only is None else time.nodes.intersection(only), time)


def anywhere(state: GraphState, jobspec: Jobspec) -> Restriction:
    """Return the nodes that a request may have at any time."""
    if not jobspec.reservation:
        return Restriction()
    times = state.reserved_times.get(jobspec.reservation, ())
    return Restriction(only=times[0].nodes if times else frozenset())


def refusal_inside(state: GraphState, jobspec: Jobspec, duration_s: int) -> str:
    """Return why a request can never fit in the advance reservation that it names, as far as times go;
    empty if it can.
    """
    name = jobspec.reservation
    coming = [time for time in state.reserved_times.get(name, ()) if time.job.end > state.now]
    if not coming:
        return f"the reservation {name!r} is over or has no nodes"
    longest = max(time.job.end - time.job.start for time in coming)
    if coming[-1].job.end >= state.horizon or 0 < duration_s <= longest:
        return ""
    wants = f"it takes {duration_s} s" if duration_s else "it has no end"
    return (
        f"the reservation {name!r} lasts {longest} s, and {wants}: "
        "what runs inside it must end before it does"
    )


def in_the_way(
    state: GraphState, matcher: Matcher, jobspec: Jobspec, end: int, restriction: Restriction
) -> ReservedTime | None:
    """Return the first reserved time that keeps a request from a window that begins now;
    None if it would not fit without any either.
    """
    now = state.now
    all_times = (time for each in state.reserved_times.values() for time in each)
    times = [
        time for time in all_times if time is not restriction.inside and time.job.overlaps(now, end, now)
    ]
    if not times:
        return None
    with ExitStack() as left_out:
        for time in times:
            left_out.enter_context(time.opened())
        placement = matcher.place(jobspec, now, end, restriction)
    if placement is None:
        return None
    met = (time for time in times if not time.nodes.isdisjoint(placement.vertices))
    return min(met, key=lambda time: (time.job.start, time.name), default=None)


def not_begun(state: GraphState, name: str) -> str:
    """Return in a sentence when an advance reservation begins next;
    empty if one of its times has begun, or none comes.
    """
    coming = next((time for time in state.reserved_times.get(name, ()) if time.job.end > state.now), None)
    if coming is None or coming.job.start <= state.now:
        return ""
    return f"waits for its reservation {name}, which begins at {utc(coming.job.start)}"


def obstacle(state: GraphState, time: ReservedTime) -> str:
    """Return in a sentence how a reserved time keeps a request from starting now."""
    kind = "maintenance" if time.maintenance else "reservation"
    if time.job.start <= state.now:
        until = f", at {utc(time.job.end)}" if time.job.end < state.horizon else ""
        return f"waits for the end of the {kind} {time.name}{until}"
    return f"would overlap the {kind} {time.name} at {utc(time.job.start)}"


def utc(seconds: int) -> str:
    """Return a time as it is written in sentences."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
