"""Compares cluster, tables, the leader's memory and the graph, and repairs what differs.

`fluxqueue.queue.recovery.comparison` compares; the doctor reads the four. The sweep compares what this
process has in its caches, which costs no call to the API server. `kubectl fluxqueue doctor` reads everything
from the API server again, so it also finds a cache that went wrong. Tables and memory are read under the lock
of their changes, so a difference between them is real. Only differences that two looks saw count.

A repair brings the leader to the state in which every leader starts: the tables are read again, the graph is
filled again, and every object and row is compared again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import structlog

from fluxqueue.api.clusterobjects import LeaseSpec
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import JobInfo, NodeUse, Stat
from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, LEASES, NODES, PODS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.metrics import REPAIRS
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.recovery.comparison import differences, lasting
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import SchedulerState, SystemSnapshot
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper, GraphLost
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Doctor"]

log = structlog.get_logger()

_BETWEEN_S = 1.0
_IN_GRAPH = (Difference.GRAPH_JOBS, Difference.GRAPH_NODES, Difference.GRAPH_FOREIGN)


def _nothing_due(_asked: object) -> bool:
    return False


class Doctor:
    """Examines and repairs.

    Parameters
    ----------
    api, caches, ledger, graph, foreign
        The API server, what the watches know of it, the queue, the graph in Fluxion, and the pods that are
        not ours.
    scheduler
        Namespace and name of the Lease of our own scheduler; None where it is not installed.
    compare_clocks
        Returns by how many seconds each clock is ahead of the time of day.
    fluxjob_due, job_due
        True if the FluxJob of a workload waits for its turn to be written, or a Job (by its uid) to be taken
        into the queue: among very much work that takes minutes, and nothing is to be repaired.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        graph: GraphKeeper,
        foreign: ForeignPods,
        scheduler: tuple[str, str] | None = None,
        compare_clocks: Callable[[], Awaitable[Mapping[str, float]]] | None = None,
        fluxjob_due: Callable[[Workload], bool] = _nothing_due,
        job_due: Callable[[str], bool] = _nothing_due,
    ) -> None:
        self._api = api
        self._compare_clocks = compare_clocks
        self._scheduler = scheduler
        self._caches = caches
        self._ledger = ledger
        self._graph = graph
        self._foreign = foreign
        self._fluxjob_due = fluxjob_due
        self._job_due = job_due

    async def examine(
        self, *, looks: int = 2, from_api: bool = True, thorough: bool = True, pending: bool = True
    ) -> list[Finding]:
        """Return what differs.

        Parameters
        ----------
        looks
            Looks, one second apart. With more than one, return what all saw: a single look also sees changes
            that are under way.
        from_api
            Read the API server, not the caches.
        thorough
            Read the tables, read from Fluxion what each job holds where, and its nodes, and read the nodes of
            the cluster as the graph is to hold them. Takes seconds in a large cluster.
        pending
            Read also pending work from the tables.
        """
        findings = await self._look(from_api=from_api, thorough=thorough, pending=pending)
        for _ in range(1, looks):
            if not findings:
                break
            await asyncio.sleep(_BETWEEN_S)
            findings = lasting(
                findings, await self._look(from_api=from_api, thorough=thorough, pending=pending)
            )
        return self._without_due(findings)

    def _without_due(self, findings: list[Finding]) -> list[Finding]:
        """Leave out the FluxJobs and Jobs that wait for their turn. A sweep has just enqueued all, so that is
        asked after the last look: little work had its turn by then.
        """
        unshown = {finding.about for finding in findings if finding.what is Difference.NO_FLUXJOB}
        unknown = {finding.about for finding in findings if finding.what is Difference.UNKNOWN_OBJECT}
        due: set[tuple[Difference, str]] = set()
        if unshown:
            rows = (row for row in self._ledger.all() if row.ref in unshown)
            due |= {(Difference.NO_FLUXJOB, row.ref) for row in rows if self._fluxjob_due(row)}
        if unknown:
            jobs = (job.metadata for job in self._caches.jobs.list())
            refs = ((f"Job {each.namespace}/{each.name}", each.uid) for each in jobs)
            due |= {
                (Difference.UNKNOWN_OBJECT, ref)
                for ref, uid in refs
                if ref in unknown and (self._job_due(uid) or self._ledger.by_uid(uid) is not None)
            }
        return [finding for finding in findings if (finding.what, finding.about) not in due]

    async def repair(self, findings: Sequence[Finding]) -> None:
        """Repair tables, memory and graph, and count the findings;
        the caller makes the controllers resync.
        """
        for what in Difference:
            some = [finding for finding in findings if finding.what is what]
            if some:
                REPAIRS.labels(str(what)).inc(len(some))
                log.warning("difference.repaired", what=str(what), count=len(some), first=some[0].sentence)
        if any(finding.what is Difference.MEMORY for finding in findings):
            await self.reload()
        elif any(finding.what in _IN_GRAPH for finding in findings):
            self._graph.invalidate()

    async def reload(self) -> None:
        """Read the tables again, and have the graph filled from them."""
        async with self._graph.exclusive:
            await self._ledger.load()
            self._graph.invalidate()

    async def graph_size(self) -> Stat:
        """Return the sizes and the use of the graph, without its nodes."""
        async with self._graph.exclusive:
            return await self._graph.fluxion.stat(call=self._graph.call())

    async def _look(self, *, from_api: bool, thorough: bool, pending: bool) -> list[Finding]:
        api, caches, ledger = self._api, self._caches, self._ledger
        if from_api:
            pods, nodes = await api.list(PODS), await api.list(NODES)
            jobs, fluxjobs = await api.list(JOBS), await api.list(FLUXJOBS)
        else:
            pods, nodes, jobs, fluxjobs = (
                caches.pods.list(),
                caches.nodes.list(),
                caches.jobs.list(),
                caches.fluxjobs.list(),
            )
        failed: list[Finding] = []
        rebuilds = self._graph.rebuilds
        graph_jobs: tuple[JobInfo, ...] = ()
        graph_nodes: tuple[NodeUse, ...] = ()
        async with self._graph.exclusive:
            try:
                await self._graph.ensure()
                graph_jobs = await self._graph.fluxion.list_jobs(
                    call=self._graph.call(), with_shares=thorough
                )
                if thorough:
                    graph_nodes = (
                        await self._graph.fluxion.stat(call=self._graph.call(), per_node=True)
                    ).node_use
            except (FluxionError, GraphLost) as error:
                self._graph.invalidate()
                told = f"Fluxion does not answer as it should: {error}"
                failed.append(Finding(Difference.GRAPH_JOBS, "fluxion", told))
            stored, remembered = (
                await ledger.compared(pending=pending) if thorough else (ledger.contents(), ledger.contents())
            )
        usable: list[Node] = [node for node in nodes if not node.metadata.deletion_timestamp]
        snapshot = SystemSnapshot(
            pods=pods,
            nodes=usable,
            jobs=jobs,
            fluxjobs=fluxjobs,
            workloads=stored.workloads,
            allocations=stored.allocations,
            reservations=stored.reservations,
            remembered=remembered.workloads,
            held=remembered.allocations,
            graph_jobs=graph_jobs,
            graph_nodes=graph_nodes,
            specs=self._graph.specs_of(usable) if thorough else self._graph.nodes,
            foreign=await self._foreign_amounts([use.node for use in graph_nodes]),
            now=ledger.clock(),
            wall=ledger.wall(),
            clocks=await self._compare_clocks() if from_api and self._compare_clocks is not None else {},
            thorough=thorough,
            scheduler=await self.scheduler_state(pods) if from_api else SchedulerState.UNKNOWN,
        )
        findings = await asyncio.to_thread(differences, snapshot)
        # just filled: the next cycle adds the reservations again
        if failed or self._graph.rebuilds != rebuilds:
            findings = [finding for finding in findings if finding.what not in _IN_GRAPH]
        return failed + findings

    async def _foreign_amounts(self, nodes: Sequence[str]) -> dict[str, Mapping[str, int]]:
        """Return what pods that are not ours take of each node."""
        return {share.node: share.amounts for share in await self._foreign.shares_in_turns(nodes)}

    async def scheduler_state(self, pods: Sequence[Pod]) -> SchedulerState:
        """Return the state of our own scheduler; its Lease is read only if a pod waits for it."""
        if not any(pod.fluxion_binds and pod.active and not pod.spec.node_name for pod in pods):
            return SchedulerState.UNKNOWN
        if self._scheduler is None:
            return SchedulerState.ABSENT
        namespace, name = self._scheduler
        try:
            lease = (await self._api.get(LEASES, name, namespace)).spec
        except NotFound:
            return SchedulerState.AWAY
        except Forbidden:
            return SchedulerState.UNKNOWN
        return SchedulerState.LEADS if _renewed(lease, self._ledger.wall()) else SchedulerState.AWAY


def _renewed(lease: LeaseSpec, now: datetime) -> bool:
    """True if a Lease is held and was renewed lately; clocks may differ by twice its duration."""
    try:
        at = datetime.fromisoformat(lease.renew_time or "")
    except ValueError:
        return False
    return (
        bool(lease.holder_identity)
        and at.tzinfo is not None
        and (now - at).total_seconds() < 3 * (lease.lease_duration_seconds or 1)
    )
