"""Compares the rows of the queue with their objects, their reservations and the leader's memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.records import Allocation
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import FRESH, SystemSnapshot

__all__ = ["compare_queue"]

_SHOWN = timedelta(seconds=30)
"""Work that is being started among much other work has its FluxJob after this time at the latest."""


def compare_queue(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Yield the differences."""
    yield from _rows(snapshot)
    yield from _reservations(snapshot)
    yield from _workloads_in_memory(snapshot)
    yield from _allocations_in_memory(snapshot)


def _rows(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """A pending workload has an object, a reason and a FluxJob."""
    objects = {item.metadata.uid: item.metadata for kind in (snapshot.jobs, snapshot.pods) for item in kind}
    shown = {fluxjob.spec.object_ref.uid for fluxjob in snapshot.fluxjobs}
    for workload in snapshot.workloads:
        where = workload.ref
        young = snapshot.now - workload.submitted_at < FRESH
        if workload.kind == "Pod" and workload.uid in objects:
            # it may have a slot of its Job
            young = not snapshot.is_old(objects[workload.uid].creation_timestamp)
        if (
            workload.kind in ("Job", "Pod")
            and workload.uid not in objects
            and workload.state is State.PENDING
        ):
            yield Finding(
                Difference.LOST_OBJECT, where, f"{where} waits in the queue and does not exist any more"
            )
        elif workload.state is State.PENDING and workload.reason is Reason.NONE and not young:
            yield Finding(Difference.NO_REASON, where, f"{where} waits without a reason")
        elif (
            workload.kind in ("Job", "Pod")
            and workload.uid in objects
            and workload.uid not in shown
            and not young
        ):
            if workload.state is State.ALLOCATED and snapshot.now - workload.submitted_at < _SHOWN:
                continue
            yield Finding(Difference.NO_FLUXJOB, where, f"{where} is in the queue and has no FluxJob")


def _reservations(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """A reservation moves to a later start only for a recorded cause."""
    workloads = {workload.id: workload for workload in snapshot.workloads}
    for reservation in snapshot.reservations:
        workload = workloads.get(reservation.workload)
        if workload is not None and reservation.start > reservation.first_start and not reservation.cause:
            first, planned = time_text(reservation.first_start), time_text(reservation.start)
            sentence = (
                f"{workload.ref} was reserved a start at {first}, is planned for {planned}, "
                "and no cause is recorded"
            )
            yield Finding(Difference.MOVED_RESERVATION, workload.ref, sentence)


def _workloads_in_memory(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The leader works with the stored workloads."""
    stored = {workload.id: workload for workload in snapshot.workloads}
    remembered = {workload.id: workload for workload in snapshot.remembered}
    for workload_id in sorted(stored.keys() | remembered.keys()):
        row, known = stored.get(workload_id), remembered.get(workload_id)
        workload = row or known
        assert workload is not None
        if (
            row is None
            or known is None
            or (row.state, row.queue, row.jobspec) != (known.state, known.queue, known.jobspec)
        ):
            table, memory = row.state if row else "missing", known.state if known else "missing"
            yield Finding(
                Difference.MEMORY,
                workload.ref,
                f"{workload.ref} is {table} in the tables and {memory} in the leader's memory",
            )


def _allocations_in_memory(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The leader works with the stored releases and open slots."""
    released_stored = {
        allocation.jobid: allocation.released_at is not None for allocation in snapshot.allocations
    }
    for allocation in snapshot.held:
        jobid, released = allocation.jobid, allocation.released_at is not None
        if released_stored.get(jobid, released) != released:
            memory, table = ("released", "not released") if released else ("not released", "released")
            sentence = f"allocation {jobid} is {table} in the tables and {memory} in the leader's memory"
            yield Finding(Difference.MEMORY, f"job {jobid}", sentence)
    slots_stored = {allocation.jobid: _open_slots(allocation) for allocation in snapshot.allocations}
    slots_held = {allocation.jobid: _open_slots(allocation) for allocation in snapshot.held}
    for jobid in sorted(slots_stored.keys() | slots_held.keys()):
        stored, held = slots_stored.get(jobid), slots_held.get(jobid)
        if stored != held:
            counts = (
                f"room for {len(stored or ())} pods in the tables and for {len(held or ())}, or others, "
                "in the leader's memory"
            )
            sentence = f"allocation {jobid} has {counts}"
            yield Finding(Difference.MEMORY, f"job {jobid}", sentence)


def _open_slots(allocation: Allocation) -> tuple[tuple[int, int, str], ...]:
    return tuple((int(slot.jobid), slot.rank, slot.node) for slot in allocation.open_slots)
