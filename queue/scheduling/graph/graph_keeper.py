"""Keeps Fluxion's resource graph equal to the present nodes and the stored allocations.

Fluxion is a cache. Its instance may not be the one that was filled: it restarted, another leader filled it,
or its content is in doubt. Then it is filled again with the nodes and every live allocation, and nothing is
matched before. A change of nodes is sent as it is: added, removed, up or down. Running work is not touched.

``version`` changes whenever something may fit that did not fit before. Answers that a request can never fit
are valid for one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetAdvanceReservations,
    SetNodeStatus,
)
from fluxqueue.fluxion.errors import FluxionError, UnknownJob
from fluxqueue.fluxion.messages import AdvanceReservation, CallContext, GraphNodeSpec, Pool
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools, pools_for
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload
from fluxqueue.queue.scheduling.graph.graph_jobs import GraphJobs, leaving_job
from fluxqueue.queue.scheduling.graph.node_specs import NodeSpecs, ToSpec
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["GraphKeeper", "GraphLost"]

log = structlog.get_logger()

_NO_JOB = 0
"""No job has this id, ids begin at 1.
To ask for it costs nothing, and only the instance with our graph answers."""


class GraphLost(Exception):
    """Fluxion refused a change that it should accept.
    The graph is filled again before anything else is matched.
    """


class GraphKeeper:
    """Fills and corrects the graph.

    Parameters
    ----------
    fluxion
        The matcher.
    ledger
        Source of the live allocations.
    nodes
        The cluster's nodes.
    to_spec
        Converts a node for Fluxion, less what DaemonSets take of it.
    policy
        Match policy.
    foreign
        Foreign pods on the nodes; None: there are none.
    countables
        What nodes have that they do not report.

    Attributes
    ----------
    exclusive
        Lock of the graph. Held while grants are on their way from Fluxion into the table, and while the two
        are compared.
    version
        Number of the graph's state.
    rebuilds
        How often the graph was filled.
    foreign_changes
        How often it was changed what foreign pods have.
    jobs
        The jobs in the graph that hold the allocations.
    """

    def __init__(
        self,
        fluxion: Fluxion,
        ledger: Ledger,
        nodes: ObjectCache[Node],
        to_spec: ToSpec,
        policy: str,
        foreign: ForeignPods | None = None,
        port_volume_pools: PortVolumePools | None = None,
    ) -> None:
        self.fluxion = fluxion
        self.exclusive = asyncio.Lock()
        self.version = 0
        self.rebuilds = 0
        self.foreign_changes = 0
        self.jobs = GraphJobs(ledger)
        self._ledger = ledger
        self._policy = policy
        self._foreign = foreign
        self._port_volume_pools = port_volume_pools or PortVolumePools(ledger)
        self.specs = NodeSpecs(nodes, to_spec, foreign, self._port_volume_pools)
        self.parts = self.specs, self._port_volume_pools
        self._instance = ""
        self._in_graph: Mapping[str, GraphNodeSpec] = {}
        self._foreign_amounts: dict[str, Mapping[str, int]] = {}
        self._capacity_changed = True
        self._displaced: set[int] = set()
        self._set_aside: tuple[AdvanceReservation, ...] = ()

    def call(self) -> CallContext:
        """Return time, epoch and instance for a call to the graph."""
        return CallContext(
            now=int(self._ledger.wall().timestamp()), epoch=self._ledger.epoch, instance=self._instance
        )

    def take_capacity_changed(self) -> bool:
        """Return whether something may have been freed or changed since the last call."""
        capacity_changed, self._capacity_changed = self._capacity_changed, False
        return capacity_changed

    def usable(self, node: str) -> bool:
        """True if a node is in the graph and up."""
        spec = self._in_graph.get(node)
        return spec is not None and not spec.down

    @property
    def nodes(self) -> Mapping[str, GraphNodeSpec]:
        """The nodes in the graph, by name."""
        return self._in_graph

    @property
    def added_pools(self) -> tuple[Pool, ...]:
        """What a node without limits of its own has that it does not report."""
        return pools_for(self._port_volume_pools.types, {})

    def largest_daemon_use(self) -> dict[str, int]:
        """Return the most that DaemonSets take of any node, by type, in the graph's units."""
        return self.specs.largest_daemon_use()

    def learn_requests(self) -> None:
        """Have the next `ensure` put into the graph what all work asks for that the ledger has now."""
        self._port_volume_pools.refresh()

    def has_types(self, workload: Workload) -> bool:
        """True if the graph, or what the next `ensure` makes of it, has all types that work asks for."""
        return self._port_volume_pools.has(workload.jobspec)

    def take_displaced(self) -> set[int]:
        """Return the job ids of reservations that changed nodes or foreign pods displaced since the last
        call.
        """
        displaced, self._displaced = self._displaced, set()
        return displaced

    @property
    def reserved_starts(self) -> list[int]:
        """The starts of what is set aside for people, in Unix seconds."""
        return [start for each in self._set_aside for start, _ in each.times]

    async def set_aside(self, wanted: tuple[AdvanceReservation, ...]) -> None:
        """Set nodes aside for people, and nothing else any more; call it after `ensure`.

        Raises
        ------
        FluxionError, GraphLost
            As for `ensure`.
        """
        if wanted == self._set_aside:
            return
        await self._apply([SetAdvanceReservations(wanted)], "set nodes aside")
        self._set_aside = wanted
        self.version += 1
        self._capacity_changed = True

    def note_capacity_changed(self) -> None:
        """Have everything tried again in this cycle: a time of a reservation began."""
        self._capacity_changed = True

    def specs_of(self, nodes: Iterable[Node]) -> dict[str, GraphNodeSpec]:
        """Return these nodes as the graph is to hold them."""
        return self.specs.of(nodes)

    def invalidate(self) -> None:
        """Make the next `ensure` fill the graph again."""
        self._instance = ""

    async def ensure(self) -> None:
        """Bring the graph to the present nodes and allocations.

        Raises
        ------
        FluxionError
            Fluxion cannot be reached or refuses. The graph is filled again next time.
        """
        self._count()
        try:
            if self._instance:
                # before nodes change: DaemonSets take more as work ends
                await self._return_freed(self._ledger.take_freed())
            wanted = self.specs.present()
            if not self._instance:
                await self._rebuild(wanted)
            elif wanted is not self._in_graph and wanted != self._in_graph:
                await self._adjust(wanted)
            await self._return_freed(self._ledger.take_freed())
            await self._resize_foreign(self._foreign.take_changed() if self._foreign else set())
        except (FluxionError, GraphLost):
            self.invalidate()
            raise

    async def alive(self) -> bool:
        """True if Fluxion still has the graph that was filled, or if it is yet to be filled.

        A cycle that asks nothing, because nothing can fit, would not detect that the matcher lost its graph.
        """
        async with self.exclusive:
            if not self._instance:
                return True
            try:
                await self.fluxion.info(_NO_JOB, call=self.call())
            except UnknownJob:
                return True
            except FluxionError as error:
                log.info("graph.gone", error=str(error))
                self.invalidate()
                return False
            return True

    def _count(self) -> None:
        """Update what is counted on nodes that they do not report."""
        self._port_volume_pools.refresh()
        if self._port_volume_pools.overfull:
            log.info("graph.forgets_unused_types", types=len(self._port_volume_pools.types))
            self.invalidate()
        if not self._instance:
            self._port_volume_pools.reset()

    async def _resize_foreign(self, changed: set[str]) -> None:
        """Set what foreign pods have on these nodes."""
        if self._foreign is None:
            return
        shares = await self._foreign.shares_in_turns(sorted(changed & self._in_graph.keys()))
        shares = [share for share in shares if share.amounts != self._foreign_amounts.get(share.node)]
        if not shares:
            return
        answer = await self.fluxion.apply([ResizeSystem(shares)], call=self.call())
        if not answer.done:
            raise GraphLost(f"Fluxion did not accept what foreign pods have: {answer.reason}")
        self._foreign_amounts.update((share.node, share.amounts) for share in shares)
        self.foreign_changes += 1
        self._capacity_changed = True
        self._displaced.update(answer.displaced)
        if answer.excess:
            log.warning("nodes.overcommitted", nodes=[share.node for share in answer.excess])

    async def _rebuild(self, wanted: Mapping[str, GraphNodeSpec]) -> None:
        # What was freed until now is not in the new graph.
        self._ledger.take_freed()
        live = self._ledger.live()
        instance = await self.fluxion.init(
            self._policy, nodes=list(wanted.values()), call=replace(self.call(), instance="")
        )
        self._instance = instance
        reach(CrashPoint.GRAPH_EMPTY)
        self.jobs.clear()
        jobs = [each for workload, allocation in live for each in self.jobs.restored(workload, allocation)]
        if jobs:
            answer = await self.fluxion.apply([RestoreJobs(jobs)], call=self.call())
            if not answer.done:
                log.error("graph.restore_failed", reason=answer.reason, allocations=len(jobs))
                raise GraphLost(f"Fluxion did not restore the live allocations: {answer.reason}")
        self._set_aside = ()
        self._in_graph = wanted
        self._foreign_amounts = {name: {} for name in wanted}
        self.version += 1
        self.rebuilds += 1
        self._capacity_changed = True
        reach(CrashPoint.GRAPH_FILLED)
        await self._resize_foreign(set(wanted))
        log.info(
            "graph.filled",
            instance=instance,
            nodes=len(wanted),
            allocations=len(jobs),
            rebuilds=self.rebuilds,
        )

    async def _adjust(self, wanted: Mapping[str, GraphNodeSpec]) -> None:
        present = self._in_graph
        gone = [name for name in present if name not in wanted]
        turned = {
            name: not spec.down
            for name, spec in wanted.items()
            if name in present and replace(spec, down=present[name].down) == present[name]
        }
        turned = {name: up for name, up in turned.items() if present[name].down == up}
        reshaped = [spec for name, spec in wanted.items() if name not in turned and spec != present.get(name)]
        changes: list[Change] = [RemoveNodes(gone)] if gone else []
        changes += [AddNodes(reshaped)] if reshaped else []
        changes += [SetNodeStatus(turned)] if turned else []
        if changes:
            await self._apply(changes, "change nodes")
        self._in_graph = wanted
        if self._foreign is not None and reshaped:
            for spec in reshaped:
                self._foreign_amounts.pop(spec.name, None)
            # pods may have come before their node, and pods of DaemonSets follow it
            self._foreign.recount(spec.name for spec in reshaped)
        self.version += 1
        self._capacity_changed = True
        log.info("graph.adjusted", removed=len(gone), added=len(reshaped), turned=len(turned))

    async def _return_freed(self, freed: Freed) -> None:
        if not freed:
            return
        self._capacity_changed = True
        reach(CrashPoint.ALLOCATIONS_FREED)
        jobs, parts = self.jobs.held_by(freed)
        self.jobs.forget(freed)
        try:
            if jobs or parts:
                await self._apply([CancelJobs(jobs), *parts], "free what is over")
        except (FluxionError, GraphLost):
            # It is unknown whether it was done, and to cancel twice could free what is in use: the graph is
            # filled again.
            self._ledger.return_freed(freed)
            raise
        reach(CrashPoint.FLUXION_CANCELLED)
        if self._foreign is not None and freed.nodes:
            # pods may still run there that were counted by a slot until now
            self._foreign.recount(freed.nodes)

    # ---- planned ends --------------------------------------------------------------------------------------

    async def move_end(self, allocation: Allocation, end: int) -> Sequence[int]:
        """Move the planned end of an allocation (Unix seconds);
        return the reservations that this displaced.
        """
        return await self._extend(allocation.jobid, end) if self.jobs.holds(allocation) else ()

    async def give_back(self, workload: Workload, allocation: Allocation) -> bool:
        """Plan that the slots that a workload gives back are free soon; return True if that is new."""
        changes = self.jobs.divide(workload, allocation)
        if changes:
            await self._apply(changes, f"divide job {allocation.jobid}")
        return bool(changes)

    async def take_back(self, workload: Workload, allocation: Allocation, end: int) -> Sequence[int]:
        """Hold the slots with the others that a workload does not give back any more, until an end;
        return displaced reservations.
        """
        await self._apply(self.jobs.unite(workload, allocation), f"unite job {allocation.jobid}")
        return await self._extend(allocation.jobid, end)

    async def keep_leaving(self, workload: Workload, jobid: FluxionJobId) -> Sequence[int]:
        """Plan slots that are given back for longer, as they are not free at their planned end;
        return displaced reservations.
        """
        return await self._extend(leaving_job(jobid), self.jobs.later_end(workload, jobid))

    async def _extend(self, jobid: FluxionJobId, end: int) -> Sequence[int]:
        answer = await self.fluxion.apply([ExtendJob(jobid, end)], call=self.call())
        if not answer.done:
            raise GraphLost(f"Fluxion did not move the end of job {jobid}: {answer.reason}")
        return answer.displaced

    async def _apply(self, changes: Sequence[Change], doing: str) -> None:
        done = await self.fluxion.apply(changes, call=self.call())
        if not done.done:
            raise GraphLost(f"Fluxion did not {doing}: {done.reason}")
        self._displaced.update(done.displaced)
