"""The Job of some calls: its object, its Secret, and the way of its results to their futures.

The Job is created first, then the Secret that it owns, which its pods wait for. So whenever this process
ends, nothing is left for good: the Secret goes with the Job, a Job without its Secret ends at its deadline,
and a Job that has ended is deleted after `KEPT_S`.

A pod of a Job can be lost without a fault of the call: evicted, preempted, on a node that fails. Such a pod
is replaced, so a call runs at least once and at most a few times. A pod that ends in any other way is not:
its calls get `WorkerDied`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from fluxqueue.api.pods import Pod
from fluxqueue.client.async_workloads import AsyncWorkload
from fluxqueue.client.calls import PackedCalls
from fluxqueue.client.connections import Connection
from fluxqueue.client.errors import (
    ExecutorBroken,
    FluxQueueError,
    NoCluster,
    OutcomeUnknown,
    ResultUnreadable,
    WorkCancelled,
    translated,
)
from fluxqueue.client.frames import Damaged, TooLarge, from_log, lines_of, opened
from fluxqueue.client.handles import Handle
from fluxqueue.client.outcomes import death, finish, termination
from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.kube.kinds import JOBS, PODS, SECRETS

if TYPE_CHECKING:
    from fluxqueue.client.object_watches import ObjectWatch

__all__ = ["TaskJob"]

Json = dict[str, Any]
_LOOK_S = 5.0
_PATIENCE_S = 300.0
"""How long an API server or a node that does not answer is asked again for a result,
which is lost with its Job."""
_STATUS = -1


class TaskJob:
    """Some calls on their way; `run` follows them to their end.

    Parameters
    ----------
    connection
        The cluster.
    manifest
        The Job, complete.
    calls
        What its Secret contains.
    futures
        The futures of each task.
    max_result_bytes
        The largest result of one pod.
    check
        Raises if the queue would not see the Job.
    """

    def __init__(
        self,
        connection: Connection,
        manifest: Json,
        calls: PackedCalls,
        futures: Sequence[Sequence[Future[Any]]],
        max_result_bytes: int,
        check: Callable[[Json], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._check = check
        self._manifest = manifest
        self._calls = calls
        self._futures = futures
        self._max_bytes = max_result_bytes
        self._open = set(range(len(futures)))
        self._told: set[Future[Any]] = set()
        self._silent: dict[int, float] = {}
        self.changed = asyncio.Event()
        self.workload: AsyncWorkload | None = None

    async def run(self, pods: ObjectWatch[Pod], slots: asyncio.Semaphore) -> None:
        """Submit the Job, set the futures, and delete the Job. Every future is done afterwards.

        Parameters
        ----------
        pods
            The pods of the executor.
        slots
            Bounds how many Jobs are created, or results read, at the same time.
        """
        try:
            await pods.open()
            async with slots:
                if self._is_wanted():
                    await self._submit()
            if self.workload is not None:
                await self._follow(pods, slots)
        except asyncio.CancelledError:
            self._fail(
                ExecutorBroken(
                    "the client was closed while calls were running: their Jobs go on, "
                    "and are deleted an hour after their end"
                )
            )
            raise
        except FluxQueueError as error:
            self._fail(error)
        except Exception as error:  # a future must not wait for ever, whatever happened
            self._fail(
                ExecutorBroken(f"the calls cannot be followed any more: {type(error).__name__}: {error}")
            )
        finally:
            self._fail(ExecutorBroken("the calls ended without a result"))
            self._tell_cancelled()
        if self.workload is not None:
            with contextlib.suppress(FluxQueueError):  # it is deleted an hour after its end
                await self.workload.delete()

    async def _submit(self) -> None:
        meta = self._manifest["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        await self._check(self._manifest)
        try:
            job = await self._connection.api.create(JOBS, self._manifest, namespace)
        except ApiError as error:
            raise translated(error) from None
        workload = AsyncWorkload(self._connection, Handle("Job", namespace, name, (job.metadata.uid,)))
        body = {
            "metadata": {
                "name": name,
                "labels": meta["labels"],
                "ownerReferences": [JOBS.reference(job, controller=True)],
            },
            "immutable": True,
            "data": self._calls.encoded(),
        }
        try:
            await self._connection.api.create(SECRETS, body, namespace)
        except ApiError as error:
            # why it was refused matters more; it ends at its deadline
            with contextlib.suppress(FluxQueueError):
                await workload.delete()
            raise translated(error) from None
        self.workload = workload

    async def _follow(self, pods: ObjectWatch[Pod], slots: asyncio.Semaphore) -> None:
        assert self.workload is not None
        fluxjobs = await self._connection.watch(self.workload.namespace)
        key = self.workload.handle.key
        with pods.listening(key, self.changed), fluxjobs.listening(key, self.changed):
            while True:
                self.changed.clear()
                await self._look(pods.all(key), slots)
                if not self._is_wanted():
                    return
                pods.check()
                if await self._has_ended(self.workload, slots):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self.changed.wait()

    async def _has_ended(self, workload: AsyncWorkload, slots: asyncio.Semaphore) -> bool:
        """True if the Job has ended, and with it all calls; false also while nobody can say."""
        try:
            status = await workload.status()
            if not status.ended:
                self._silent.pop(_STATUS, None)
                return False
            await self._look(await workload.handle.pods(self._connection.api), slots)
        except FluxQueueError as error:
            if self._passes(error, _STATUS):
                return False
            raise
        self._silent.pop(_STATUS, None)
        if not self._open.isdisjoint(self._silent):
            return False  # a result is there, and cannot be read at this moment
        if status.state == "Cancelled":
            self._fail(
                WorkCancelled(f"{workload.handle.title} was cancelled by somebody: submit the call again")
            )
        self._bury()
        return True

    def _passes(self, error: FluxQueueError, what: int) -> bool:
        """True if an error is one of those that pass, and did not last too long:
        of a task, or of `_STATUS`.
        """
        if not isinstance(error, NoCluster | OutcomeUnknown):
            return False
        return time.monotonic() - self._silent.setdefault(what, time.monotonic()) < _PATIENCE_S

    def _is_wanted(self) -> bool:
        """True if any future is still open. Those that were cancelled are told that nobody works on them."""
        self._tell_cancelled()
        for index in [*self._open]:
            if all(future.done() for future in self._futures[index]):
                self._open.discard(index)
        return bool(self._open)

    def _tell_cancelled(self) -> None:
        """Tell who waits for cancelled futures (`concurrent.futures.wait`) that they are done;
        each is told once.
        """
        for futures in self._futures:
            for future in futures:
                if future.cancelled() and future not in self._told:
                    self._told.add(future)
                    future.set_running_or_notify_cancel()

    async def _look(self, pods: Sequence[Pod], slots: asyncio.Semaphore) -> None:
        """Act on the present state of pods."""
        for pod in pods:
            index = pod.completion_index
            if index not in self._open:
                continue
            if pod.status.phase in ("Running", "Succeeded", "Failed"):
                self._mark_running(index)
            if pod.status.phase == "Succeeded":
                async with slots:
                    await self._take(pod, index)
            elif pod.status.phase == "Failed" and not _disrupted(pod):
                self._fail(death(pod, self._what(index)), index)

    async def _take(self, pod: Pod, index: int) -> None:
        try:
            payload = await self._payload(pod, index)
        except FluxQueueError as error:
            if self._passes(error, index):
                return
            self._fail(error, index)
        else:
            # In a thread, since callbacks of the futures may use the client.
            await asyncio.to_thread(finish, self._futures[index], payload)
        self._open.discard(index)

    async def _payload(self, pod: Pod, index: int) -> bytes:
        """Return the signed result of a pod."""
        task = f"{self._calls.task}.{index}"
        ended = termination(pod)
        try:
            text = (ended.message if ended is not None else "") or from_log(await self._log(pod), task)
            return opened(text, self._calls.key, task, self._max_bytes)
        except TooLarge as error:
            raise ResultUnreadable(
                f"{self._what(index)}: its result cannot be read: {error}: return less"
            ) from None
        except Damaged as error:
            raise ResultUnreadable(
                f"{self._what(index)}: the result in the output of Pod {pod.metadata.name} cannot be read "
                f"({error}): have it print less, since nodes keep only the end of an output, "
                "or return a smaller result"
            ) from None

    async def _log(self, pod: Pod) -> list[str]:
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
        query = {"container": "call", "tailLines": str(lines_of(self._max_bytes) + 100)}
        try:
            return (
                (await self._connection.api.request("GET", path, query=query))
                .decode(errors="replace")
                .splitlines()
            )
        except NotFound:
            raise death(None, f"Job {pod.metadata.namespace}/{self._manifest['metadata']['name']}") from None
        except ApiError as error:
            raise translated(
                error,
                "results of more than 3,000 bytes are read from the output of the pod, "
                "which needs the right pods/log",
            ) from None

    def _mark_running(self, index: int) -> None:
        for future in self._futures[index]:
            if not future.running() and not future.done() and not future.set_running_or_notify_cancel():
                self._told.add(future)  # cancelled at this moment

    def _what(self, index: int) -> str:
        meta = self._manifest["metadata"]
        number = f", task {index}" if len(self._futures) > 1 else ""
        return f"Job {meta['namespace']}/{meta['name']}{number}"

    def _bury(self) -> None:
        """End the calls whose pods left nothing when the Job ended."""
        for index in [*self._open]:
            self._fail(death(None, self._what(index)), index)

    def _fail(self, error: FluxQueueError, index: int | None = None) -> None:
        """Set an exception for the open futures of a task, or of all."""
        for which in [*self._open] if index is None else [index]:
            for future in self._futures[which]:
                if not future.done():
                    with contextlib.suppress(Exception):  # cancelled at this moment
                        future.set_exception(error)
            self._open.discard(which)


def _disrupted(pod: Pod) -> bool:
    """True if the pod was evicted, preempted or lost its node: it is replaced."""
    condition = pod.status.condition("DisruptionTarget")
    return condition is not None and condition.status == "True"
