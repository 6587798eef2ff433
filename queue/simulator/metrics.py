"""Figures of a simulated policy, in the usual measures of scheduling research."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fluxqueue.queue.simulator.simulated_work import SimulatedJob

__all__ = ["SIZE_CLASSES", "Summary", "size_class", "summarise", "utilisation_over_time"]

_SHORT_S = 10
_LEAST_WAIT_S = 60
SIZE_CLASSES = (1, 4, 16, 64)
"""Upper bounds in nodes. The last class has all larger jobs."""


class Summary(msgspec.Struct, frozen=True, omit_defaults=False):
    """The figures of one policy.

    Attributes
    ----------
    utilisation
        Used node-seconds in proportion to those of the machine, from the first submission to the last.
    mean_wait_s, median_wait_s, p95_wait_s
        From submission to start.
    mean_bounded_slowdown
        (wait + runtime) / max(runtime, 10 s), at least 1 (Feitelson and Rudolph).
    makespan_s
        From the first submission to the last end.
    promised
        Jobs that had a reservation before they started.
    reserved_late
        Those of them that started later than their first reservation.
    eta_error
        Median of abs(start - first reserved start) / max(wait, 60 s) over them; None if there are none.
    eta_in_range
        Part of them whose start was in the range estimated with the first reservation; None if there are
        none.
    cycles, seconds
        Number of rounds, and how long the simulation took.
    limited, preemptions
        Jobs that were ended at the end of their duration, and how often jobs were preempted.
    molded
        Jobs that started with fewer nodes than they asked for.
    moves
        How often jobs were moved.
    wide_median_wait_s
        Of jobs of more than one node.
    gave_back, lost_node_s
        Nodes that jobs gave back, and what was lost with them and by jobs that were preempted or moved:
        node-seconds since the start or the last checkpoint.
    """

    jobs: int
    utilisation: float
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    mean_bounded_slowdown: float
    makespan_s: int
    promised: int
    reserved_late: int
    eta_error: float | None
    eta_in_range: float | None
    cycles: int
    seconds: float
    limited: int = 0
    preemptions: int = 0
    molded: int = 0
    moves: int = 0
    wide_median_wait_s: float = 0.0
    gave_back: int = 0
    lost_node_s: int = 0


def summarise(
    ran: Sequence[SimulatedJob], nodes: int, *, cycles: int, seconds: float, cores: int = 1
) -> Summary:
    """Return the figures of jobs that have all ended on so many nodes of so many cores."""
    first, last = ran[0].job.submit_s, ran[-1].job.submit_s
    window = max(last - first, 1)
    busy = sum(
        (
            _mean_nodes(each) * max(0, min(each.end_s, last) - max(each.start_s, first))
            + each.job.nodes * each.saved_s
        )
        * each.job.cores
        / cores
        for each in ran
    )
    wide = [each.wait_s for each in ran if each.job.nodes > 1]
    waits = np.array([each.wait_s for each in ran], dtype=np.float64)
    runtimes = np.array([each.job.runtime_s for each in ran], dtype=np.float64)
    ran_s = np.array(
        [each.end_s - each.start_s if each.varied else each.job.runtime_s for each in ran], dtype=np.float64
    )
    slowdowns = np.maximum((waits + ran_s) / np.maximum(runtimes, _SHORT_S), 1.0)
    reserved = [each for each in ran if each.first_reserved_start_s is not None]
    errors = [
        abs(each.start_s - (each.first_reserved_start_s or 0)) / max(each.wait_s, _LEAST_WAIT_S)
        for each in reserved
    ]
    within = [
        (each.soonest_s or 0) <= each.start_s <= (each.first_reserved_start_s or 0) for each in reserved
    ]
    return Summary(
        jobs=len(ran),
        utilisation=busy / (nodes * window),
        mean_wait_s=float(waits.mean()),
        median_wait_s=float(np.median(waits)),
        p95_wait_s=float(np.quantile(waits, 0.95)),
        mean_bounded_slowdown=float(slowdowns.mean()),
        makespan_s=max(each.end_s for each in ran) - first,
        promised=len(reserved),
        reserved_late=sum(each.start_s > (each.first_reserved_start_s or 0) for each in reserved),
        eta_error=float(np.median(errors)) if errors else None,
        eta_in_range=sum(within) / len(within) if within else None,
        cycles=cycles,
        seconds=seconds,
        limited=sum(each.limited for each in ran),
        preemptions=sum(each.preempted for each in ran),
        molded=sum(each.molded for each in ran),
        moves=sum(each.moved for each in ran),
        wide_median_wait_s=float(np.median(wide)) if wide else 0.0,
        gave_back=sum(each.gave_back for each in ran),
        lost_node_s=sum(each.lost_node_s for each in ran),
    )


def _mean_nodes(ran: SimulatedJob) -> float:
    """Return how many nodes a job had on average."""
    if not ran.varied:
        return ran.job.nodes
    run_s = ran.job.requested_s if ran.limited else ran.job.runtime_s
    return ran.job.nodes * max(run_s - ran.saved_s, 1) / (ran.end_s - ran.start_s)


def utilisation_over_time(ran: Sequence[SimulatedJob], nodes: int, points: int) -> npt.NDArray[np.float64]:
    """Return the part of the machine in use as averages over ``points`` equal intervals from the first
    submission to the last end.
    """
    first, last = ran[0].job.submit_s, max(each.end_s for each in ran)
    edges = np.linspace(first, max(last, first + 1), points + 1)
    starts = np.array([each.start_s for each in ran], dtype=np.float64)
    ends = np.array([each.end_s for each in ran], dtype=np.float64)
    sizes = np.array([_mean_nodes(each) for each in ran], dtype=np.float64)
    used = np.array([(sizes * np.clip(np.minimum(ends, edge) - starts, 0, None)).sum() for edge in edges])
    averages: npt.NDArray[np.float64] = np.diff(used) / (np.diff(edges) * nodes)
    return averages


def size_class(nodes: int) -> int:
    """Return the index of the size class of a job."""
    return next((index for index, bound in enumerate(SIZE_CLASSES) if nodes <= bound), len(SIZE_CLASSES))
