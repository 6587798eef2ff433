"""Carries out what maintenances do when they begin and end: cordon, evict, uncordon
(`fluxqueue.queue.requeue.maintenance_decisions`).

It compares whenever a reservation or a node changed, when a time begins or ends, and every half minute.
Nothing is done before the first cycle of a leader: until then it does not know which nodes are set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import structlog

from fluxqueue.api.fluxreservations import AtStart
from fluxqueue.api.nodes import Node
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import FLUXRESERVATIONS, NODES
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.requeue.maintenance_decisions import (
    NodeWrite,
    evictions_for,
    nodes_in_maintenance,
    useless_graces,
    writes_for,
)
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Maintenances"]

log = structlog.get_logger()

_EVERY_S = 30.0
_PACE_S = 0.5
_AT_ONCE = 8

Booked = Callable[[], Mapping[str, BookedReservation] | None]
Evict = Callable[[Sequence[Eviction]], Awaitable[list[WorkloadId]]]
EndGraces = Callable[[Mapping[WorkloadId, str]], Awaitable[None]]


class Maintenances:
    """Cordons and uncordons nodes, and evicts the work on them.

    Parameters
    ----------
    api, caches, ledger
        The cluster and the queue.
    booked
        Returns what is set aside; None before the first cycle.
    evict, end_graces
        Evicts workloads, and stops those that are preempted before their grace is over.
    recorder
        For an Event on a reservation whose nodes cannot be cordoned.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        booked: Booked,
        evict: Evict,
        end_graces: EndGraces,
        recorder: EventRecorder | None = None,
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._booked = booked
        self._evict = evict
        self._end_graces = end_graces
        self._recorder = recorder
        self._changed = asyncio.Event()
        self._evicts = False
        self._refused: frozenset[WorkloadId] = frozenset()

    def resync(self) -> None:
        """Compare all nodes."""
        self._changed.set()

    def node_changed(self, change: Change[Node]) -> None:
        """Compare if a node came, went, or was cordoned or marked; not at each of its heartbeats."""
        old, new = change.old, change.new
        if (
            old is None
            or new is None
            or old.spec != new.spec
            or old.metadata.annotations != new.metadata.annotations
        ):
            self._changed.set()

    def workload_changed(self, _workload: WorkloadId) -> None:
        """Compare while work is evicted from nodes in maintenance."""
        if self._evicts:
            self._changed.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._changed.wait()
            self._changed.clear()
            if (booked := self._booked()) is not None:
                try:
                    await self._compare(booked)
                except DatabaseUnavailable as error:
                    log.warning("maintenance.postponed", error=str(error))
            await asyncio.sleep(_PACE_S)

    def _wait_s(self) -> float:
        """Seconds until a time begins or ends, but no more than half a minute."""
        now = self._ledger.wall().timestamp()
        edges = (
            edge
            for each in (self._booked() or {}).values()
            for time in each.times[:2]
            for edge in (time.start, time.end)
        )
        return min((edge - now for edge in (*edges, now + _EVERY_S) if edge > now), default=_EVERY_S)

    async def _compare(self, booked: Mapping[str, BookedReservation]) -> None:
        now = int(self._ledger.wall().timestamp())
        reservations = list(booked.values())
        cordoned = nodes_in_maintenance(reservations, now, (AtStart.DRAIN, AtStart.EVICT))
        writes = writes_for(self._caches.nodes.list(), cordoned)
        for first in range(0, len(writes), _AT_ONCE):
            await asyncio.gather(*(self._write(each) for each in writes[first : first + _AT_ONCE]))
        evicted = nodes_in_maintenance(reservations, now, (AtStart.EVICT,))
        self._evicts = bool(evicted)
        if evicted:
            await self._evict_from(evicted)

    async def _evict_from(self, evicted: Mapping[str, str]) -> None:
        await self._end_graces(useless_graces(self._ledger.evicting(), evicted, self._ledger.clock()))
        if evictions := evictions_for(self._ledger.live(), evicted, self._ledger.clock()):
            refused, told = frozenset(await self._evict(evictions)), self._refused
            self._refused = refused  # bare pods stay until they end: they are tried each time, and told once
            if len(refused) < len(evictions) or refused - told:
                log.info("maintenance.evicted", workloads=len(evictions) - len(refused), refused=len(refused))

    async def _write(self, write: NodeWrite) -> None:
        name = write.node.metadata.name
        try:
            await self._api.patch(NODES, name, cast("dict[str, Any]", write.patch))
        except (Conflict, NotFound):
            return  # the watch has, or will have, what it is now
        except ApiError as error:
            self._report(write, error)
            return
        if write.reservation is not None:
            reach(CrashPoint.CORDONED)
            log.info("maintenance.cordoned", node=name, reservation=write.reservation)
        else:
            reach(CrashPoint.UNCORDONED)
            log.info("maintenance.uncordoned", node=name)

    def _report(self, write: NodeWrite, error: ApiError) -> None:
        """Say on the reservation, or on the node, why it cannot be cordoned or uncordoned.
        It is tried again every half minute.
        """
        name, verb = write.node.metadata.name, "cordoned" if write.reservation is not None else "uncordoned"
        log.warning("maintenance.failed", node=name, reservation=write.reservation, error=str(error))
        if self._recorder is None:
            return
        reservation = (
            self._caches.fluxreservations.get("", write.reservation)
            if write.reservation is not None
            else None
        )
        subject = (
            Subject.of(FLUXRESERVATIONS, reservation)
            if reservation is not None
            else Subject.of(NODES, write.node)
        )
        message = (
            f"node {name} cannot be {verb}: {error}: set reservations.enabled of the chart, "
            "which gives the queue that right"
        )
        self._recorder.record(subject, "CordonFailed", message, severity=Severity.WARNING)
