"""Reservations of pending work: held in the graph, stored in the ledger, and cancelled once they no longer
hold.

The matcher keeps other work off a reservation, so the graph must hold exactly the reservations that are
stored. A graph that was filled again gets them back on the same nodes. Before each round, the reservations
that no longer hold are cancelled, each with its cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import MatchVerdict
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import FluxionJobId, Reservation, WorkloadId
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.job_ids import JobIds
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backfill_pass import NOT_WAITING
from fluxqueue.queue.scheduling.policies.passes import HeldReservation, PassResult
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ReservationKeeper"]

log = structlog.get_logger()


class ReservationKeeper:
    """Reservations by workload. The caller holds the lock of the graph.

    Attributes
    ----------
    held
        The reservations in the graph. The round driver adds and removes entries.
    """

    def __init__(
        self, ledger: Ledger, graph: GraphKeeper, backlogs: Backlogs, job_ids: JobIds, rules: MatchRules
    ) -> None:
        self.held: dict[WorkloadId, HeldReservation] = {}
        self._ledger = ledger
        self._graph = graph
        self._backlogs = backlogs
        self._job_ids = job_ids
        self._rules = rules
        self._shapes: dict[WorkloadId, str] = {}
        self._rebuilds_seen = 0

    def of_queue(self, queue: str) -> dict[WorkloadId, HeldReservation]:
        """Return the reservations of a queue."""
        return {
            workload_id: held
            for workload_id, held in self.held.items()
            if self._backlogs.queue_of(workload_id) == queue
        }

    @property
    def queues(self) -> set[str]:
        """The queues that have reservations."""
        return {
            queue for workload_id in self.held if (queue := self._backlogs.queue_of(workload_id)) is not None
        }

    def forget_jobs(self, jobids: Collection[int]) -> list[WorkloadId]:
        """Forget reservations that the matcher displaced; return their workloads."""
        holders = {held.jobid: workload_id for workload_id, held in self.held.items()} if jobids else {}
        workloads = [holders[FluxionJobId(jobid)] for jobid in jobids if jobid in holders]
        for workload_id in workloads:
            self.held.pop(workload_id, None)
        return workloads

    def forget(self, workloads: Iterable[WorkloadId]) -> None:
        """Forget the reservations of workloads whose job ids are freed."""
        for workload_id in workloads:
            self.held.pop(workload_id, None)

    # ---- before the round ----------------------------------------------------------------------------------

    def first_starts(self, dropped: Iterable[WorkloadId]) -> dict[WorkloadId, int]:
        """Return the first reserved start of workloads that have a reservation, or had one until now,
        in Unix seconds.
        """
        firsts = (
            (workload_id, self._ledger.first_start(workload_id)) for workload_id in (*self.held, *dropped)
        )
        return {workload_id: int(first.timestamp()) for workload_id, first in firsts if first is not None}

    async def restore_after_rebuild(self, match_policies: Mapping[str, str]) -> dict[WorkloadId, str]:
        """Reserve the stored reservations again, on the same nodes, if the graph was filled again;
        return the causes of those that fail.
        """
        dropped: dict[WorkloadId, str] = {}
        if self._rebuilds_seen == self._graph.rebuilds:
            return dropped
        self.held.clear()
        for reservation in self._ledger.reservations():
            workload = self._ledger.get(reservation.workload)
            if workload is None or workload.id not in self._backlogs:
                continue
            jobspec, refusal = (
                self._rules.constrained(workload)
                if self._rules.applies_to(workload)
                else (workload.jobspec, "")
            )
            if refusal:
                dropped[workload.id] = "its rules about other pods admit no node any more"
                continue
            answer = await self._graph.fluxion.reserve_at(
                reservation.jobid,
                jobspec,
                int(reservation.start.timestamp()),
                nodes=[share.node for share in reservation.shares],
                call=self._graph.call(),
                policy=match_policies.get(workload.queue, ""),
            )
            if answer.verdict is MatchVerdict.RESERVED:
                self.held[workload.id] = HeldReservation(
                    workload.id,
                    reservation.jobid,
                    answer.at,
                    answer.end,
                    answer.shares,
                    workload.order_priority,
                )
                self._shapes[workload.id] = workload.shape
                self._job_ids.keep(workload.id, reservation.jobid)
            else:
                dropped[workload.id] = f"its nodes changed: {answer.reason}"
        self._rebuilds_seen = self._graph.rebuilds
        return dropped

    async def cancel_on_changed_nodes(self) -> dict[WorkloadId, str]:
        """Cancel reservations on nodes that are gone, are down, or filled up with foreign pods;
        return their causes.
        """
        displaced = self._graph.take_displaced()
        causes: dict[WorkloadId, str] = {}
        for workload_id, held in self.held.items():
            if held.jobid in displaced:
                causes[workload_id] = "its nodes are gone, changed, filled up or set aside"
            elif away := [node for node in held.nodes if not self._graph.usable(node)]:
                causes[workload_id] = f"node {away[0]} is gone or not up"
        return await self._cancel(causes)

    async def cancel_stale(self) -> dict[WorkloadId, str]:
        """Cancel reservations of workloads whose request changed or that may no longer be matched;
        return their causes.
        """
        causes: dict[WorkloadId, str] = {}
        for workload_id in self.held:
            workload = self._ledger.get(workload_id)
            if workload is None or workload_id not in self._backlogs:
                causes[workload_id] = NOT_WAITING
            elif workload.shape != self._shapes.get(workload_id, workload.shape):
                causes[workload_id] = "its request was changed"
        return await self._cancel(causes)

    async def cancel_over_limits(self, quotas: Quotas) -> dict[WorkloadId, str]:
        """Count reservations as use of their queues; cancel those that are over a limit since it was edited,
        and return their causes.
        """
        causes: dict[WorkloadId, str] = {}
        for workload_id, held in sorted(self.held.items(), key=lambda item: (item[1].start, item[0])):
            workload = self._ledger.get(workload_id)
            if workload is None or not quotas.limited(workload.queue):
                continue
            if over := quotas.refusal(workload) or quotas.excess(workload, held.nodes, held.shares):
                causes[workload_id] = over.message
            else:
                quotas.add_usage(workload, held.nodes, held.shares)
        return await self._cancel(causes)

    async def cancel_against_rules(self) -> dict[WorkloadId, str]:
        """Cancel reservations of nodes that rules about other pods no longer admit; return their causes."""
        causes: dict[WorkloadId, str] = {}
        for workload_id, held in self.held.items():
            workload = self._ledger.get(workload_id)
            if workload is None or not self._rules.applies_to(workload):
                continue
            if violation := self._rules.violation(workload, held.shares):
                causes[workload_id] = violation
        return await self._cancel(causes)

    def update_priorities(self) -> bool:
        """Give reservations the present priorities of their workloads;
        return whether any changed, and with it what it yields to.
        """
        changed = {
            workload_id: replace(held, priority=workload.order_priority)
            for workload_id, held in self.held.items()
            if (workload := self._ledger.get(workload_id)) is not None
            and workload.order_priority != held.priority
        }
        self.held.update(changed)
        return bool(changed)

    async def _cancel(self, causes: dict[WorkloadId, str]) -> dict[WorkloadId, str]:
        if causes:
            jobids = [self.held.pop(workload_id).jobid for workload_id in causes]
            await self._graph.fluxion.apply([CancelJobs(jobids)], call=self._graph.call())
        return causes

    # ---- after the round -----------------------------------------------------------------------------------

    async def store(self, results: Collection[PassResult], dropped: Mapping[WorkloadId, str]) -> None:
        """Store the reservations that were made or moved, and delete those that were dropped.

        Parameters
        ----------
        results
            What the passes of the round did.
        dropped
            Causes of the reservations that were dropped before the round, or by a limit.
        """
        made: list[Reservation] = []
        causes = dict(dropped)
        for result in results:
            causes.update(result.dropped)
        for result in results:
            for workload_id, (workload, answer) in result.reserved.items():
                start = datetime.fromtimestamp(answer.at, UTC)
                made.append(
                    Reservation(
                        workload=workload_id,
                        jobid=FluxionJobId(answer.jobid),
                        first_start=self._ledger.first_start(workload_id) or start,
                        start=start,
                        end=datetime.fromtimestamp(answer.end, UTC)
                        if workload.duration_s is not None
                        else None,
                        shares=answer.shares,
                        cause=causes.get(workload_id, ""),
                    )
                )
                self._shapes[workload_id] = workload.shape
        renewed = {each.workload for each in made}
        for workload_id, cause in causes.items():
            if self._ledger.reservation(workload_id) is None:
                continue  # made and dropped in this same cycle
            log.info(
                "reservation.dropped", workload=workload_id, cause=cause, replaced=workload_id in renewed
            )
        if made:
            reach(CrashPoint.RESERVED)
        await self._ledger.reserve(
            made, [workload_id for workload_id in causes if workload_id not in renewed]
        )
        self._shapes = {
            workload_id: shape for workload_id, shape in self._shapes.items() if workload_id in self.held
        }
