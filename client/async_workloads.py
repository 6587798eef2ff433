"""A workload of the asynchronous client: its status, the wait for it,
and the verbs of ``kubectl fluxqueue``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from fluxqueue.api.fluxjobs import FluxJob, Reason
from fluxqueue.cli.fluxjob_edits import FluxJobEdit, cancelled, held, moved_to, prioritized, released
from fluxqueue.cli.requeue import objection as requeue_objection
from fluxqueue.client.arguments import check_text, check_whole
from fluxqueue.client.connections import Connection
from fluxqueue.client.errors import NotPossible, WaitTimeout, WorkFailed, translated
from fluxqueue.client.explanations import Explanation, explained
from fluxqueue.client.handles import Handle
from fluxqueue.client.podlogs import LogLine, LogOptions, PodLogs
from fluxqueue.client.queue_names import QueueNames
from fluxqueue.client.statuses import WorkStatus
from fluxqueue.client.waiting import Timeout, Waiting, deadline_of
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import FLUXJOBS, JOBS

__all__ = ["AsyncWorkload"]

_SHOWN_WITHIN_S = 70.0
"""In a burst, started work has its FluxJob a minute after its submission."""
_MANAGER = "fluxqueue-client"


class AsyncWorkload:
    """A submitted workload: a Job, a Pod, a pod group or a MiniCluster.

    Attributes
    ----------
    handle
        What identifies it; plain data, which can be kept and given to `AsyncClient.workload`.
    """

    def __init__(self, connection: Connection, handle: Handle) -> None:
        self._connection = connection
        self.handle = handle

    def __repr__(self) -> str:
        return f"<{self.handle.title}>"

    @property
    def kind(self) -> str:
        """``Job``, ``Pod``, ``PodGroup`` or ``MiniCluster``."""
        return self.handle.kind

    @property
    def name(self) -> str:
        """Name of the object, or of the group."""
        return self.handle.name

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.handle.namespace

    async def status(self) -> WorkStatus:
        """Return its status now.

        Raises
        ------
        WorkGone
            It was deleted before its end was seen.
        """
        return await (await self._waiting()).status()

    async def state(self) -> str:
        """Return its state now: ``Pending``, ``Running``, ``Completed`` and so on."""
        return (await self.status()).state

    async def eta(self) -> datetime | None:
        """Return its planned start, or its start if it has started; None if there is no estimate."""
        status = await self.status()
        return status.started_at or status.eta

    async def wait(
        self, *, timeout: Timeout = None, started: bool = False, check: bool = False
    ) -> WorkStatus:
        """Wait until it has ended.

        Parameters
        ----------
        timeout
            Seconds, or a `timedelta`; None waits for ever. The work is not changed by a time-out.
        started
            Wait only until its pods run, or it has ended.
        check
            Raise `WorkFailed` if it has ended without success.

        Returns
        -------
        WorkStatus
            The status that ended the wait.

        Raises
        ------
        WaitTimeout
            It is not so far in time; the message has its state and reason.
        WorkFailed
            It failed or was cancelled, and `check` is true.
        WorkGone
            It was deleted.
        """
        deadline = deadline_of(timeout)
        waiting = await self._waiting()
        status = await waiting.until(
            (lambda now: now.started or now.ended) if started else (lambda now: now.ended), deadline
        )
        if check and status.ended and not status.succeeded:
            why = status.message or status.reason or status.outcome
            raise WorkFailed(
                f"{self.handle.title} ended as {status.state}{f' ({why})' if why else ''}: "
                "read its logs, or explain it"
            )
        return status

    async def explain(self) -> Explanation:
        """Return why it waits and what helps, as ``kubectl fluxqueue explain`` says it."""
        fluxjob = await self._fluxjob()
        return explained(
            fluxjob,
            await self.handle.job(self._connection.api),
            await self.handle.pods(self._connection.api),
            _now(),
        )

    async def hold(self) -> None:
        """Keep it from starting, while it waits."""
        await self._edit(held())

    async def release(self) -> None:
        """End a hold."""
        await self._edit(released())

    async def cancel(self) -> None:
        """Cancel it: a Job is suspended and keeps its pods' output, waiting pods are deleted."""
        await self._edit(cancelled())

    async def prioritize(self, priority: int) -> None:
        """Give it another priority, while it waits."""
        check_whole("priority", priority)
        await self._edit(prioritized(priority))

    async def move(self, queue: str) -> None:
        """Move it to another queue, while it waits.

        Raises
        ------
        InvalidWork
            There is no such queue.
        NotPossible
            It does not wait any more.
        """
        check_text("queue", queue, "night")
        await QueueNames(self._connection.api).check(queue)
        await self._edit(moved_to(queue))

    async def requeue(self, *, hold: bool = False, timeout: Timeout = 600.0) -> None:
        """Stop a Job that runs, and have it wait again with its first submit time. What it computed since is
        lost.

        Parameters
        ----------
        hold
            And hold it.
        timeout
            How long it may take to stop.

        Raises
        ------
        NotPossible
            It waits already, has ended, or is no Job.
        WaitTimeout
            It has not stopped in time. It stays suspended, and to requeue it once more resumes it.
        """
        deadline = deadline_of(timeout)
        fluxjob = await self._fluxjob()
        if why := requeue_objection(fluxjob):
            raise NotPossible(f"{self.handle.title} {why}")
        await self._suspend(fluxjob, to=True)
        try:
            status = await (await self._waiting()).until(
                lambda now: now.ended or now.reason == Reason.USER_SUSPENDED, deadline
            )
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; it is suspended: requeue it once more when it has stopped") from None
        if status.ended:
            raise NotPossible(f"{self.handle.title} ended meanwhile ({status.state})")
        if hold:
            await self._patch(fluxjob, held())
        await self._suspend(fluxjob, to=False)

    async def delete(self) -> None:
        """Delete its object and all that belongs to it, in any state."""
        await self.handle.delete(self._connection.api)

    async def logs(
        self, *, follow: bool = False, tail: int | None = None, container: str = ""
    ) -> AsyncIterator[LogLine]:
        """Yield the output of its pods.

        Parameters
        ----------
        follow
            Go on until it has ended, with the pods as they start; without it, pod by pod and at most 16 MiB
            of each.
        tail
            Only so many last lines of each pod.
        container
            Name of a container that is not the first one.

        Raises
        ------
        LogsUnavailable
            No pod has started, or one cannot be read.
        """
        if tail is not None:
            check_whole("tail", tail, least=0)

        async def over() -> bool:
            return (await self.status()).ended

        reader = PodLogs(self._connection.api, lambda: self.handle.pods(self._connection.api), over)
        async for line in reader.read(LogOptions(follow, tail, container)):
            yield line

    async def _waiting(self) -> Waiting:
        return Waiting(self._connection.api, await self._connection.watch(self.namespace), self.handle)

    async def _fluxjob(self) -> FluxJob:
        """Return its FluxJob, which is created seconds after its object, in a burst up to a minute."""
        return await (await self._waiting()).fluxjob(_SHOWN_WITHIN_S)

    async def _edit(self, change: FluxJobEdit) -> None:
        fluxjob = await self._fluxjob()
        if objection := change.objection(fluxjob):
            raise NotPossible(f"{self.handle.title} {objection}")
        now = {
            "hold": fluxjob.spec.hold,
            "cancel": fluxjob.spec.cancel,
            "priority": fluxjob.spec.priority,
            "queue": fluxjob.spec.queue,
        }
        if all(now[field] == value for field, value in change.spec.items()):
            return
        await self._patch(fluxjob, change)

    async def _patch(self, fluxjob: FluxJob, change: FluxJobEdit) -> None:
        meta = fluxjob.metadata
        try:
            await self._connection.api.patch(
                FLUXJOBS, meta.name, {"spec": change.spec}, namespace=self.namespace, field_manager=_MANAGER
            )
        except ApiError as error:
            raise translated(error) from None

    async def _suspend(self, fluxjob: FluxJob, *, to: bool) -> None:
        """Suspend or resume the Job of a FluxJob, and not another one that got its name meanwhile."""
        ref = fluxjob.spec.object_ref
        body = {"metadata": {"uid": ref.uid}, "spec": {"suspend": to}}
        try:
            await self._connection.api.patch(
                JOBS, ref.name, body, namespace=self.namespace, field_manager=_MANAGER
            )
        except ApiError as error:
            raise translated(error) from None


def _now() -> datetime:
    return datetime.now().astimezone()
