"""`concurrent.futures` on the cluster: each call is a Job in the queue.

    with Client() as client, FluxQueueExecutor(client, TaskPods(image="python:3.11", cpu=4)) as executor:
        energies = list(executor.map(simulate, temperatures, chunksize=10))

The function and its arguments travel in a Secret, results as termination message or in the log of the pod
(`fluxqueue.client.frames`). So nothing needs to be shared between the cluster and this machine, and the image
needs only Python.

Without ``max_workers``, each chunk is a Job of its own: it starts as soon as one pod fits, between other
work. With it, `map` makes one Job of so many pods, which start together and then work through the chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as futures_wait
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from fluxqueue.api import names
from fluxqueue.client.calls import Chunk, PackedCalls, packed
from fluxqueue.client.errors import CallTooLarge, InvalidWork
from fluxqueue.client.submissions import Submission
from fluxqueue.client.sync_client import Client, Workload
from fluxqueue.client.task_jobs import TaskJob
from fluxqueue.client.task_manifests import TaskPods, job_manifest, job_name
from fluxqueue.client.terms import Terms, with_lists, with_terms

if TYPE_CHECKING:
    from fluxqueue.client.object_watches import ObjectWatch

__all__ = ["MAX_RESULT_BYTES", "CallExecutor", "FluxQueueExecutor", "FluxQueueFuture", "results_in_order"]

P = ParamSpec("P")
R = TypeVar("R")
MAX_RESULT_BYTES = 4 << 20
_RESULT_BYTES = 1 << 20
_TASKS = 1_000
_AT_ONCE = 16


class FluxQueueFuture(Future[R]):
    """A future that knows the workload of its call, and tells its executor when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._cancelled: Callable[[], None] = lambda: None
        self._workload: Callable[[], Workload | None] = lambda: None

    @property
    def workload(self) -> Workload | None:
        """The Job of the call, to explain or hold it; None before it is submitted."""
        return self._workload()

    def cancel(self) -> bool:
        """Cancel the call, if it does not run yet; its Job is deleted when all its calls are cancelled."""
        done = super().cancel()
        if done:
            self._cancelled()
        return done


class CallExecutor(Executor):
    """What all executors of the client keep: the futures of their calls, and what runs for them.

    Parameters
    ----------
    max_result_bytes
        The largest result, pickled.
    where
        Why results are limited.

    Raises
    ------
    InvalidWork
        ``max_result_bytes`` is out of range.
    """

    def __init__(self, max_result_bytes: int, where: str) -> None:
        if not 1_024 <= max_result_bytes <= MAX_RESULT_BYTES:
            raise InvalidWork(
                f"max_result_bytes is {max_result_bytes}: it can be from 1024 to {MAX_RESULT_BYTES}, "
                f"since {where} are limited"
            )
        self._max_bytes = max_result_bytes
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[Future[None]] = set()
        self._futures: set[Future[Any]] = set()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that there are, or cancel those that do not run yet."""
        with self._lock:
            self._closed = True
            futures, running = [*self._futures], [*self._running]
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            futures_wait(running)

    def _begin(self, futures: Iterable[Future[Any]], start: Callable[[], Future[None]]) -> None:
        """Keep futures until they are done, and what was started for them until it has ended."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is shut down: open another one")
            for future in futures:
                self._futures.add(future)
                future.add_done_callback(self._futures.discard)
            running = start()
            self._running.add(running)
        running.add_done_callback(self._ended)

    def _ended(self, running: Future[None]) -> None:
        with self._lock:
            self._running.discard(running)


class FluxQueueExecutor(CallExecutor):
    """Runs calls on the cluster.

    Parameters
    ----------
    client
        The cluster and the namespace. It must stay open as long as the executor.
    pods
        The pods of the calls.
    max_workers
        How many pods of one `map` run at the same time, and start together; None: each starts by itself, as
        soon as it can.
    max_result_bytes
        The largest result of one pod, pickled; at most 4 MiB.
    **terms
        Queue, priority and so on of all Jobs; see `Terms`. The duration is that of `pods`.

    Raises
    ------
    InvalidWork
        A parameter cannot be right.
    """

    def __init__(
        self,
        client: Client,
        pods: TaskPods,
        *,
        max_workers: int | None = None,
        max_result_bytes: int = _RESULT_BYTES,
        **terms: Unpack[Terms],
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise InvalidWork(f"max_workers is {max_workers}: at least one is needed")
        super().__init__(max_result_bytes, "logs")
        if "duration" in terms:
            raise InvalidWork("duration: say it in TaskPods(duration=), since it is the time of one pod")
        self._client = client
        self._pods = pods
        self._max_workers = max_workers
        self._terms = with_lists(terms)
        self._label = secrets.token_hex(5)
        self._watch: ObjectWatch[Any] | None = None
        self._slots: asyncio.Semaphore | None = None

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> FluxQueueFuture[R]:
        """Call a function in a pod.

        Returns
        -------
        FluxQueueFuture
            Its result, or its exception with the traceback in the pod as cause.

        Raises
        ------
        CallTooLarge, InvalidWork
            It cannot be shipped.
        RuntimeError
            The executor is shut down.
        """
        future: FluxQueueFuture[R] = FluxQueueFuture()
        calls = packed(fn, [[(args, kwargs)]], self._max_bytes)
        self._start(fn, calls, [[future]])
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **_ignored: Any,
    ) -> Iterator[R]:
        """Call a function for each item of some iterables, and return the results in their order.

        Parameters
        ----------
        fn
            The function.
        *iterables
            Its arguments; as `map`, it ends with the shortest.
        timeout
            Seconds from now after which the iterator raises `TimeoutError`.
        chunksize
            Calls that one pod makes, one after the other. A pod takes seconds to start: give it work for
            minutes.

        Raises
        ------
        CallTooLarge, InvalidWork
            A chunk cannot be shipped.
        RuntimeError
            The executor is shut down.
        """
        if chunksize < 1:
            raise InvalidWork(f"chunksize is {chunksize}: at least one is needed")
        deadline = None if timeout is None else time.monotonic() + timeout
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            (args, {}) for args in zip(*iterables, strict=False)
        ]
        chunks = [calls[start : start + chunksize] for start in range(0, len(calls), chunksize)]
        per_job = 1 if self._max_workers is None else _TASKS
        futures: list[FluxQueueFuture[R]] = []
        for start in range(0, len(chunks), per_job):
            for part, content in _fitting(fn, chunks[start : start + per_job], self._max_bytes):
                own: list[list[FluxQueueFuture[R]]] = [[FluxQueueFuture() for _ in chunk] for chunk in part]
                self._start(fn, content, own)
                futures += [future for chunk in own for future in chunk]
        return results_in_order(futures, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that there are, or cancel those that do not run yet."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        if not wait:
            self._release()
        elif self._watch is not None and not self._client.portal.closed:
            self._client.portal.call(self._watch.close())

    def _ended(self, running: Future[None]) -> None:
        super()._ended(running)
        self._release()

    def _release(self) -> None:
        """Close the watch when nobody waits for what it still has to tell."""
        with self._lock:
            over = self._closed and not self._running
        if over and self._watch is not None:
            with contextlib.suppress(RuntimeError):  # the client is closed, and so is the watch
                self._client.portal.start(self._watch.close())

    def _start(
        self,
        function: Callable[..., Any],
        calls: PackedCalls,
        futures: Sequence[Sequence[FluxQueueFuture[Any]]],
    ) -> None:
        name = job_name(getattr(function, "__name__", type(function).__name__), calls.task)
        at_once = min(len(futures), self._max_workers or 1)
        manifest = job_manifest(self._pods, name, self._label, len(futures), at_once)
        manifest["metadata"]["namespace"] = self._client.namespace
        manifest = with_terms(manifest, self._terms)
        job = TaskJob(
            self._client.asynchronous.connection, manifest, calls, futures, self._max_bytes, self._check
        )
        portal = self._client.portal

        def workload() -> Workload | None:
            return Workload(portal, job.workload) if job.workload is not None else None

        own = [each for chunk in futures for each in chunk]
        for future in own:
            future._cancelled = lambda: portal.wake(job.changed)
            future._workload = workload
        self._begin(own, lambda: portal.start(self._run(job)))

    async def _check(self, manifest: dict[str, Any]) -> None:
        meta = manifest["metadata"]
        await self._client.asynchronous.check_managed(
            Submission("Job", meta["name"], meta["namespace"], (manifest,))
        )

    async def _run(self, job: TaskJob) -> None:
        if self._watch is None or self._slots is None:
            from fluxqueue.client.object_watches import watch_pods

            selector = f"{names.EXECUTOR_LABEL}={self._label}"
            self._watch = watch_pods(self._client.asynchronous.api, self._client.namespace, selector)
            self._slots = asyncio.Semaphore(_AT_ONCE)
        await job.run(self._watch, self._slots)


def _fitting(
    function: Callable[..., Any], chunks: Sequence[Chunk], max_bytes: int
) -> Iterator[tuple[Sequence[Chunk], PackedCalls]]:
    """Yield chunks with their content, divided until each part fits into one Secret."""
    try:
        yield chunks, packed(function, chunks, max_bytes)
    except CallTooLarge:
        if len(chunks) == 1:
            raise
        half = len(chunks) // 2
        yield from _fitting(function, chunks[:half], max_bytes)
        yield from _fitting(function, chunks[half:], max_bytes)


def results_in_order(futures: Sequence[Future[R]], deadline: float | None) -> Iterator[R]:
    """Yield results in order; when the caller stops, or one fails, what does not run yet is cancelled."""

    def results() -> Iterator[R]:
        waiting = list(futures[::-1])
        try:
            while waiting:
                waiting[-1].exception(None if deadline is None else max(0.0, deadline - time.monotonic()))
                # Not kept in a variable, so that a result can be freed while the next one is awaited.
                yield waiting.pop().result()
        finally:
            for future in waiting:
                future.cancel()

    return results()
