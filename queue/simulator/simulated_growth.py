"""Jobs of a trace that start with fewer nodes than they ask for, grow, and give nodes back.

The work of a job is its nodes times its runtime, and all nodes that it has share it. A node that it gets
later is one more job of the matcher, as a pod by which a Job of a cluster grows. With a node that it gives
back it loses what it did there since it got the node, or last saved.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

from fluxqueue.api.moldable import molded_duration
from fluxqueue.fluxion.changes import CancelPart
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchVerdict, NodeShare
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.simulator.simulated_work import SimulatedJob, node_name, node_number, node_request

__all__ = ["SimulatedGrowth"]

_FIRST_PIECE = 1 << 40
"""Ids of the matcher's jobs for further nodes; those of a trace are below."""


@dataclass(slots=True)
class _Progress:
    """The work of a job that is left, in node-seconds, and since when it has each of its nodes; ``pieces``
    are the matcher's jobs of further nodes.
    """

    ran: SimulatedJob
    since_s: int
    left: int
    hosts: dict[int, int]
    pieces: dict[int, int] = field(default_factory=dict)

    def advance(self, now_s: int) -> None:
        self.left -= len(self.hosts) * (now_s - self.since_s)
        self.since_s = now_s

    def go_on(self) -> None:
        """Set the end with the nodes that it has now."""
        self.ran.hosts = tuple(self.hosts)
        self.ran.end_s = self.since_s + max(-(-self.left // len(self.hosts)), 1)


class SimulatedGrowth:
    """Keeps the work of jobs that run, and gives those more nodes that have fewer than they asked for.

    Parameters
    ----------
    fluxion
        The matcher.
    epoch_s
        Unix seconds of the beginning of the trace.
    checkpoint_s
        How often jobs save what they have, if they do not say it themselves; 0: never.
    """

    def __init__(self, fluxion: LocalFluxion, epoch_s: int, checkpoint_s: int = 0) -> None:
        self._fluxion = fluxion
        self._epoch_s = epoch_s
        self._checkpoint_s = checkpoint_s
        self._jobs: dict[int, _Progress] = {}
        self._next = _FIRST_PIECE

    def started(self, ran: SimulatedJob, run_s: int) -> None:
        """Set the end of a job that starts, and which takes so long with all its nodes."""
        ran.end_s = ran.start_s + molded_duration(run_s, ran.job.nodes, len(ran.hosts))
        hosts = dict.fromkeys(ran.hosts, ran.start_s)
        self._jobs[ran.job.number] = _Progress(ran, ran.start_s, run_s * ran.job.nodes, hosts)

    def pieces_of(self, number: int) -> Sequence[int]:
        """Return the matcher's jobs for the further nodes of a job."""
        progress = self._jobs.get(number)
        return tuple(progress.pieces.values()) if progress is not None else ()

    def lost(self, number: int, now_s: int) -> Mapping[int, int]:
        """Return, by node, what a job would lose with it: seconds since it got the node, or last saved.
        A pod of an elastic job runs as long as its job would with all nodes; then the next one begins.
        """
        progress = self._jobs.get(number)
        if progress is None:
            return {}
        job = progress.ran.job
        every_s = job.checkpoint_s or self._checkpoint_s or (job.runtime_s if job.least_nodes else 0)
        return {
            host: (now_s - since) % every_s if every_s else now_s - since
            for host, since in progress.hosts.items()
        }

    def spared(self, number: int, now_s: int) -> dict[int, int]:
        """Return the nodes that a job can give back, each with what is lost: those that lose least.
        One stays of those with which it started, by which the matcher knows it.
        """
        progress = self._jobs.get(number)
        if progress is None or not progress.ran.job.least_nodes:
            return {}
        lost = self.lost(number, now_s)
        of_start = len(lost) - len(progress.pieces)
        found: dict[int, int] = {}
        for host in sorted(lost, key=lambda each: (lost[each], each not in progress.pieces, -each)):
            if len(lost) - len(found) <= progress.ran.job.least_nodes:
                break
            of_start -= host not in progress.pieces
            if host in progress.pieces or of_start > 0:
                found[host] = lost[host]
        return found

    def held(self, number: int, hosts: Collection[int]) -> tuple[list[int], list[CancelPart]]:
        """Return what of the matcher is free without some nodes of a job: its jobs, and parts of them."""
        pieces = self._jobs[number].pieces
        shares = tuple(NodeShare(node_name(host), {}) for host in hosts if host not in pieces)
        parts = [CancelPart(number, shares)] if shares else []
        return [pieces[host] for host in hosts if host in pieces], parts

    def give_back(self, number: int, hosts: Collection[int], now_s: int) -> None:
        """Go on without some nodes."""
        progress = self._jobs[number]
        lost, ran = self.lost(number, now_s), progress.ran
        progress.advance(now_s)
        for host in hosts:
            progress.left += lost[host]
            ran.lost_node_s += lost[host]
            del progress.hosts[host]
            progress.pieces.pop(host, None)
        ran.gave_back += len(hosts)
        progress.go_on()

    def stop(self, number: int, now_s: int) -> None:
        """Note what a job has saved, and what it loses, that is to begin again."""
        if (progress := self._jobs.get(number)) is None:
            return
        ran, lost = progress.ran, sum(self.lost(number, now_s).values())
        progress.advance(now_s)
        ran.lost_node_s += lost
        run_s = ran.job.requested_s if ran.limited else ran.job.runtime_s
        ran.saved_s = max(run_s - -(-(progress.left + lost) // ran.job.nodes), 0)

    def ended(self, numbers: Sequence[int]) -> list[int]:
        """Forget jobs; return the matcher's jobs for their further nodes."""
        gone = [progress for number in numbers if (progress := self._jobs.pop(number, None)) is not None]
        return [piece for progress in gone for piece in progress.pieces.values()]

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
        smaller = (each for each, its in self._jobs.items() if len(its.hosts) < its.ran.job.nodes)
        for number in sorted(smaller):
            progress = self._jobs[number]
            ran = progress.ran
            wanted = ran.job.nodes - len(ran.hosts)
            if ran.job.queue in closed or ran.end_s <= now_s:
                continue
            length = max(ran.job.requested_s, ran.end_s - now_s)
            request = node_request(1, cores=ran.job.cores)
            requests = [
                JobMatchRequest(request, self._next + each, duration_s=length) for each in range(wanted)
            ]
            self._next += wanted
            answers = (
                await self._fluxion.match_batch(requests, call=call, stop_at_first_failure=True)
            ).results
            got = [answer for answer in answers if answer.verdict is MatchVerdict.GRANTED]
            if got:
                progress.advance(now_s)
                for answer in got:
                    for share in answer.shares:
                        host = node_number(share.node)
                        progress.hosts[host], progress.pieces[host] = now_s, answer.jobid
                progress.go_on()
                grown.append((ran, len(got)))
        return grown
