"""The three calls of a foreign service, one after the other, and what is certain about its graph.

A Go service guards its matcher by no lock, so no two calls may be under way. It forgets everything with each
Init, and when it starts again. A call without an answer may have been carried out. Then nothing is certain,
and the next match begins with an Init.

Job ids of a Fluxion graph only rise. An answer with an id that is no higher than the last one comes from
another graph than the one that was given: the service started again, or somebody else uses it too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from fluxqueue.fluxion.errors import FluxionError, InitError, UnknownJob
from fluxqueue.fluxion.foreign.answers import InvalidAnswer, taken_in
from fluxqueue.fluxion.foreign.free_graphs import FreeGraph
from fluxqueue.fluxion.rpc.failures import InternalError, InvalidCall, MatchFailed
from fluxqueue.fluxion.rpc.interface import Fluxion

__all__ = ["ForeignService"]

log = structlog.get_logger()

_JGF_NAMED = '", "load_format": "jgf'
"""Appended to a policy. A Go service writes the policy into a JSON text without a check,
and flux-sched 0.47 and later read a JGF only if that text names the format."""


class ForeignService:
    """A foreign matcher behind its three calls.

    Parameters
    ----------
    client
        The connection. Nobody else may use it.
    policy
        Match policy of its graph.

    Attributes
    ----------
    certain
        True if the service is known to have the graph that was given, with the jobs that it granted.
    offered
        Names of the nodes of that graph.
    left_out
        How many nodes with free resources it has not, because they did not fit into a message.
    inits
        How often a graph was given.
    """

    def __init__(self, client: Fluxion, policy: str) -> None:
        self.client = client
        self.certain = False
        self.offered: Collection[str] = frozenset()
        self.left_out = 0
        self.inits = 0
        self._policy = policy
        self._suffix = ""
        self._last = 0
        self._jobs: dict[int, list[int]] = {}

    def doubt(self) -> None:
        """Have the next match begin with an Init."""
        self.certain = False

    async def init(self, graph: FreeGraph) -> None:
        """Give the service a graph; it forgets all jobs.

        Raises
        ------
        FluxionError
            The service cannot be reached, or refuses the graph.
        """
        self.certain = False
        try:
            await self._init(graph.text)
        except (InvalidCall, InternalError) as error:
            raise InitError(
                f"the foreign matcher does not take the graph of {len(graph.nodes)} nodes: {error}"
            ) from None
        self.certain, self.offered, self.left_out = True, graph.nodes, graph.left_out
        self.inits += 1
        self._last = 0
        self._jobs.clear()
        log.info("foreign.filled", nodes=len(graph.nodes), left_out=graph.left_out, inits=self.inits)

    async def _init(self, text: str) -> None:
        try:
            await self.client.init(self._policy + self._suffix, jgf=text)
        except InitError:
            other = "" if self._suffix else _JGF_NAMED
            await self.client.init(self._policy + other, jgf=text)
            self._suffix = other

    async def match(self, jobid: int, jobspec: str) -> dict[str, dict[str, int]] | None:
        """Ask for a part of a job of ours.

        Returns
        -------
        dict or None
            Node -> type -> number of vertices; None if the service finds nothing, for whatever reason.

        Raises
        ------
        InvalidAnswer
            The answer cannot be used; what it holds is given back.
        FluxionError
            No answer arrived.
        """
        try:
            answer = await self.client.match(jobspec)
        except MatchFailed:
            return None
        except BaseException:
            self.doubt()
            raise
        if not answer.allocation:
            return None
        if answer.jobid <= self._last:
            self.doubt()
            raise InvalidAnswer(
                f"its job has the id {answer.jobid} after {self._last}: the service started again, "
                "or has another user too"
            )
        self._last = answer.jobid
        self._jobs.setdefault(jobid, []).append(answer.jobid)
        try:
            return taken_in(answer)
        except InvalidAnswer:
            await self.cancel([jobid])
            raise

    async def cancel(self, jobids: Sequence[int]) -> None:
        """Give back all that jobs of ours hold.
        Where that is not certain to have been done, the next match begins with an Init.
        """
        for jobid in jobids:
            for foreign_id in self._jobs.pop(jobid, ()):
                try:
                    await self.client.cancel(foreign_id)
                except UnknownJob:
                    # flux-sched before 0.46 has no other answer; what it holds too much is found by the next
                    # match that fails
                    continue
                except FluxionError as error:
                    log.info("foreign.cancel_failed", error=str(error))
                    self.doubt()
                    return
                except BaseException:
                    self.doubt()
                    raise

    async def cancel_others(self, live: Collection[int]) -> None:
        """Give back what jobs hold that are over."""
        await self.cancel([jobid for jobid in self._jobs if jobid not in live])
