"""Jobs of a trace that start with fewer nodes than they ask for, and grow.

The work of a job is its nodes times its runtime, and all nodes that it has share it. A node that it gets
later is one more job of the matcher, as a pod by which a Job of a cluster grows.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from fluxqueue.api.moldable import molded_duration
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchVerdict
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.simulator.simulated_work import SimulatedJob, node_number, node_request

__all__ = ["SimulatedGrowth"]

_FIRST_PIECE = 1 << 40
"""Ids of the matcher's jobs for further nodes; those of a trace are below."""


@dataclass(slots=True)
class _Progress:
    """The work of a job that is left, in node-seconds, and its further nodes."""

    ran: SimulatedJob
    since_s: int
    left: int
    pieces: list[int] = field(default_factory=list)


class SimulatedGrowth:
    """Keeps the work of jobs with fewer nodes than they asked for, and gives them more.

    Parameters
    ----------
    fluxion
        The matcher.
    epoch_s
        Unix seconds of the beginning of the trace.
    """

    def __init__(self, fluxion: LocalFluxion, epoch_s: int) -> None:
        self._fluxion = fluxion
        self._epoch_s = epoch_s
        self._jobs: dict[int, _Progress] = {}
        self._next = _FIRST_PIECE

    def started(self, ran: SimulatedJob, run_s: int) -> None:
        """Set the end of a job that starts, and which takes so long with all its nodes."""
        ran.end_s = ran.start_s + molded_duration(run_s, ran.job.nodes, len(ran.hosts))
        if len(ran.hosts) < ran.job.nodes:
            self._jobs[ran.job.number] = _Progress(ran, ran.start_s, run_s * ran.job.nodes)

    def pieces_of(self, number: int) -> Sequence[int]:
        """Return the matcher's jobs for the further nodes of a job."""
        progress = self._jobs.get(number)
        return progress.pieces if progress is not None else ()

    def ended(self, numbers: Sequence[int]) -> list[int]:
        """Forget jobs; return the matcher's jobs for their further nodes."""
        gone = [progress for number in numbers if (progress := self._jobs.pop(number, None)) is not None]
        return [piece for progress in gone for piece in progress.pieces]

    async def grow(self, now_s: int, closed: Container[str] = ()) -> list[tuple[SimulatedJob, int]]:
        """Give jobs what is free beside all reservations, the earliest submission first.

        Parameters
        ----------
        now_s
            The second of the trace.
        closed
            Queues in which nothing overtakes what waits.

        Returns
        -------
        list
            The jobs whose end is sooner, each with the number of nodes that it got.
        """
        grown: list[tuple[SimulatedJob, int]] = []
        call = CallContext(now=self._epoch_s + now_s)
        for number in sorted(self._jobs):
            progress = self._jobs[number]
            ran = progress.ran
            wanted = ran.job.nodes - len(ran.hosts)
            if not wanted or ran.job.queue in closed or ran.end_s <= now_s:
                continue
            length = max(ran.job.requested_s, ran.end_s - now_s)
            requests = [
                JobMatchRequest(node_request(1), self._next + each, duration_s=length)
                for each in range(wanted)
            ]
            self._next += wanted
            answers = (
                await self._fluxion.match_batch(requests, call=call, stop_at_first_failure=True)
            ).results
            got = [answer for answer in answers if answer.verdict is MatchVerdict.GRANTED]
            if got:
                _extend(
                    progress, [node_number(share.node) for answer in got for share in answer.shares], now_s
                )
                progress.pieces += [answer.jobid for answer in got]
                grown.append((ran, len(got)))
        return grown


def _extend(progress: _Progress, hosts: Sequence[int], now_s: int) -> None:
    """Go on with more nodes."""
    ran = progress.ran
    progress.left -= len(ran.hosts) * (now_s - progress.since_s)
    progress.since_s = now_s
    ran.hosts = (*ran.hosts, *hosts)
    ran.end_s = now_s + max(-(-progress.left // len(ran.hosts)), 1)
