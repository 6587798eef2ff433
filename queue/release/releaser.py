"""Releases workloads that have an allocation, each claimed first, so that no two processes release one at
once.

The allocation is stored before. An object that was edited, or whose nodes changed, is matched again. An
object that is gone frees its allocation. A crash between the patch and the note of it repeats the release,
which finds its own work (`fluxqueue.queue.release.object_release`) and notes it.

A release that the API server refused is due again when its claim expires. Refused three times, the workload
frees its nodes and is held with the API server's message, until its object is edited or a person lifts the
hold. A release that failed because the API server was unavailable or overloaded, or that was too early for
the Job controller, is due after 1 s, then 2, 4 and so on up to that time. The table has these times. Each
round ends with a timer for the earliest one.

One that fails again and again in this way while others are released is no outage. It has the API server's
message as its reason too, and is tried on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import OBJECT_FAILURES, RELEASE_SECONDS, RELEASES
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload
from fluxqueue.queue.release.blockers import PreparationFailed
from fluxqueue.queue.release.object_release import Cancelled, Edited, NotYet, ObjectReleaser, Unfit
from fluxqueue.queue.release.release_slots import ReleaseSlots
from fluxqueue.queue.release.rounds import ReleaseResult, ReleaseRound
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Releaser"]

log = structlog.get_logger()

_CONCURRENT = 16
_SOONEST_S = 0.2
_LONGEST_MESSAGE = 300
_MOST_REFUSALS = 3
_MOST_FAILURES = 3
"""After so many that follow releases of others, the reason is stored."""


class _Failures(NamedTuple):
    """How often a release failed though others succeeded since its failure before,
    and how many had succeeded at the latest one.
    """

    times: int
    released: int


class Releaser:
    """The control task ``release``.

    Parameters
    ----------
    objects
        Releases single objects.
    ledger, trigger
        The queue and the control tasks.
    reread
        Has the intake read an object (uid) again.
    """

    def __init__(
        self, objects: ObjectReleaser, ledger: Ledger, trigger: Trigger, reread: Callable[[str], None]
    ) -> None:
        self._objects = objects
        self.parts = (objects,)
        self._ledger = ledger
        self._trigger = trigger
        self._reread = reread
        self._timer: asyncio.TimerHandle | None = None
        self._limit = ReleaseSlots(_CONCURRENT)
        self._released = 0
        self._failures: dict[FluxionJobId, _Failures] = {}

    async def release_due(self) -> None:
        """Release everything that is due, and trigger the next round when more is due."""
        self._failures = {
            jobid: failures
            for jobid, failures in self._failures.items()
            if self._ledger.allocation_of_job(jobid) is not None
        }
        try:
            await ReleaseRound(self._ledger, self._release).run()
        finally:
            self._set_timer(await self._ledger.next_release_at())

    def _set_timer(self, at: datetime | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay_s = max((at - self._ledger.clock()).total_seconds(), _SOONEST_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._trigger.release)

    async def _release(self, workload: Workload, allocation: Allocation) -> ReleaseResult:
        """Release one workload, and store why that is impossible."""
        mode = str(workload.release_mode)
        await self._objects.settle(workload)
        try:
            async with self._limit.of(workload.namespace):
                await self._objects.release(workload, allocation)
        except NotFound:
            RELEASES.labels(mode, "gone").inc()
            message = f"{workload.ref} was deleted before it was released"
            await self._ledger.finish([Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, message)])
            self._trigger.schedule()
            return ReleaseResult.STORED
        except Edited as edited:
            RELEASES.labels(mode, "unfit" if isinstance(edited, Unfit) else "edited").inc()
            await self._requeue(workload, Reason.NONE, str(edited))
            return ReleaseResult.STORED
        except PreparationFailed as problem:
            RELEASES.labels(mode, "unprepared").inc()
            await self._requeue(workload, Reason.INVALID_REQUEST, f"{workload.ref}: {problem}")
            return ReleaseResult.STORED
        except Cancelled:  # it ends, unless the person takes that back
            return ReleaseResult.UNAVAILABLE
        except (ApiError, NotYet) as error:
            if isinstance(error, ApiError) and error.is_refusal:
                RELEASES.labels(mode, "refused").inc()
                log.warning("release.refused", object=workload.ref, workload=workload.id, error=str(error))
                await self._count_refusal(workload, allocation, str(error))
                return ReleaseResult.STORED
            # the API server is unavailable or overloaded, or the Job is new
            RELEASES.labels(mode, "failed").inc()
            log.warning("release.failed", object=workload.ref, workload=workload.id, error=str(error))
            await self._count_failure(workload, allocation, str(error))
            return ReleaseResult.UNAVAILABLE
        except (StaleLeader, DatabaseUnavailable):
            raise
        except Exception as error:
            RELEASES.labels(mode, "broken").inc()
            OBJECT_FAILURES.labels("releases").inc()
            log.exception("release.broken", object=workload.ref, workload=workload.id)
            await self._count_refusal(workload, allocation, " ".join(str(error).split())[:_LONGEST_MESSAGE])
            return ReleaseResult.STORED
        self._released += 1
        self._failures.pop(allocation.jobid, None)
        RELEASES.labels(mode, "released").inc()
        RELEASE_SECONDS.observe(max((self._ledger.clock() - allocation.granted_at).total_seconds(), 0.0))
        return ReleaseResult.RELEASED

    async def _requeue(self, workload: Workload, reason: Reason, message: str) -> None:
        """Free its nodes and have its object read again."""
        await self._ledger.requeue([Requeue(workload=workload.id, reason=reason, message=message)])
        reach(CrashPoint.EDITED)
        self._reread(workload.uid)
        self._trigger.schedule()

    async def _count_failure(self, workload: Workload, allocation: Allocation, error: str) -> None:
        """Store the error as the reason if others were released between the failures."""
        before = self._failures.get(allocation.jobid, _Failures(0, self._released))
        times = before.times + (self._released > before.released)
        self._failures[allocation.jobid] = _Failures(times, self._released)
        if times >= _MOST_FAILURES and workload.reason is not Reason.RELEASE_FAILED:
            await self._ledger.mark_release_failed(
                allocation.jobid, f"{workload.ref} could not be released: {error}"
            )

    async def _count_refusal(self, workload: Workload, allocation: Allocation, error: str) -> None:
        """Store the error for the next attempt. The third time, free the nodes and hold the workload."""
        state = workload.requeue_state
        jobid, before = state.refused_releases
        times = before + 1 if jobid == allocation.jobid else 1
        if times < _MOST_REFUSALS:
            counted = msgspec.structs.replace(state, refused_releases=(allocation.jobid, times))
            await self._ledger.set_requeue_states({workload.id: counted})
            await self._ledger.mark_release_failed(
                allocation.jobid, f"{workload.ref} could not be released: {error}"
            )
            return
        message = (
            f"{workload.ref} could not be released {times} times and is held: {error}; repair that, then "
            f"edit the {workload.kind} or set spec.hold of its FluxJob to false"
        )
        held = msgspec.structs.replace(state, unreleasable=workload.generation, refused_releases=(0, 0))
        await self._ledger.set_requeue_states({workload.id: held})
        await self._ledger.requeue([Requeue(workload=workload.id, reason=Reason.HELD, message=message)])
        self._reread(workload.uid)
        self._trigger.schedule()
