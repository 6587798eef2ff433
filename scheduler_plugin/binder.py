"""Bind one pod to its node, with retries, and report the outcome.

A Binding carries the uid and the resourceVersion of the pod that was checked. The API server refuses it with
409 if anything about the pod has changed: a withdrawn allocation, a deletion, another replica that was
faster. That is no failure: the watch delivers the pod in its new state, and it is checked again. For the same
reason a Binding whose arrival is unknown can safely be sent again.
"""

from __future__ import annotations

import asyncio
import enum
import random
import time
from dataclasses import dataclass
from typing import Final

import structlog

from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.gangs import Member
from fluxqueue.scheduler_plugin.limits import BindLimit
from fluxqueue.scheduler_plugin.metrics import BIND_CONFLICTS, BIND_LIMIT, BIND_SECONDS

__all__ = ["BindOutcome", "BindResult", "Binder"]

TIMEOUT_S: Final = 10.0
TRIES: Final = 4
_NO_RIGHT: Final = "cannot create resource"
"""The sentence of RBAC. Any other 403 (a policy, a namespace that terminates) concerns only the pod."""

log: Final = structlog.get_logger(__name__)


class BindOutcome(enum.StrEnum):
    """The outcome of a bind."""

    BOUND = "bound"
    CHANGED = "changed"
    UNKNOWN = "unknown"
    UNAUTHORIZED = "unauthorized"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class BindResult:
    """The outcome of a bind, with the API server's sentence if it failed."""

    outcome: BindOutcome
    message: str = ""


class Binder:
    """Binds pods that are assumed on their nodes.

    Parameters
    ----------
    api
        The client; it writes only while this replica leads.
    caches
        The watched and assumed pods.
    limit
        The limit of binds in flight.
    """

    def __init__(self, api: Api, caches: SchedulerCaches, limit: BindLimit) -> None:
        self._api = api
        self._caches = caches
        self._limit = limit

    async def bind(self, member: Member) -> BindResult:
        """Bind one pod, with a few retries if the server is busy or unreachable.

        The pod stays assumed on its node unless the bind is refused. The watch shows the final state.

        Returns
        -------
        BindResult
            CHANGED: wait for the watch. UNKNOWN: check again after a pause. UNAUTHORIZED: this client may not
            bind at all. REFUSED: this pod cannot be bound in its current state.

        Raises
        ------
        NotLeading
            This replica no longer leads and must end.
        """
        for failures in range(TRIES):
            result, wait_s = await self._try(member, failures)
            if result.outcome is not BindOutcome.UNKNOWN or wait_s is None:
                break
            await asyncio.sleep(wait_s)
            if not self._unchanged(member):
                result = BindResult(BindOutcome.CHANGED)
                break
        if result.outcome in (BindOutcome.REFUSED, BindOutcome.UNAUTHORIZED):
            self._caches.forget(member.uid, member.assignment.node)
        return result

    async def _try(self, member: Member, failures: int) -> tuple[BindResult, float | None]:
        """Send the Binding once; also return after how many seconds to retry, or None."""
        meta = member.pod.metadata
        ticket = await self._limit.acquire()
        if failures == 0 and not self._unchanged(member):
            self._limit.done()
            return BindResult(BindOutcome.CHANGED), None
        started = time.monotonic()
        try:
            await self._api.bind(
                meta.name,
                meta.namespace,
                member.assignment.node,
                uid=meta.uid,
                resource_version=meta.resource_version,
                timeout_s=TIMEOUT_S,
            )
        except (TooManyRequests, ServerError, Unreachable) as error:
            if isinstance(error, Unreachable) and not error.sent:
                self._limit.done()
            else:
                self._limit.overloaded(ticket, error.retry_after_s or 0.0)
            log.warning(
                "bind.failed",
                pod=f"{meta.namespace}/{meta.name}",
                uid=meta.uid,
                failures=failures + 1,
                error=str(error),
            )
            again = failures + 1 < TRIES
            return BindResult(BindOutcome.UNKNOWN, error.message), _pause_s(
                error, failures
            ) if again else None
        except BaseException as error:
            self._limit.done()
            if not isinstance(error, ApiError) or isinstance(error, NotLeading):
                raise
            return _classify(error), None
        finally:
            BIND_LIMIT.set(self._limit.value)
        self._limit.succeeded()
        BIND_SECONDS.observe(time.monotonic() - started)
        return BindResult(BindOutcome.BOUND), None

    def _unchanged(self, member: Member) -> bool:
        """Return True if the watch shows the pod in the state that was checked."""
        now = self._caches.pods.get_by_uid(member.uid)
        return now is not None and now.metadata.resource_version == member.pod.metadata.resource_version


def _classify(error: ApiError) -> BindResult:
    if isinstance(error, NotFound | Conflict):
        BIND_CONFLICTS.inc()
        return BindResult(BindOutcome.CHANGED, error.message)
    if isinstance(error, Unauthorized) or (isinstance(error, Forbidden) and _NO_RIGHT in error.message):
        return BindResult(BindOutcome.UNAUTHORIZED, error.message)
    return BindResult(BindOutcome.REFUSED, error.message)


def _pause_s(error: ApiError, failures: int) -> float:
    jittered = jittered_s(failures, base_s=0.05, cap_s=2.0, random=random.random)
    return max(jittered, error.retry_after_s or 0.0)
