"""`concurrent.futures` inside a Flux instance: each call is a job of a MiniCluster that serves its REST
interface.

    flux = client.flux(minicluster)
    with FluxExecutor(flux, cores_per_task=4) as executor:
        energies = list(executor.map(simulate, temperatures, chunksize=10))

The nodes are there already, so a call starts in a fraction of a second. The function travels in the command
of its job: one archive, as text, which a line of Python unpacks and runs. The result is in the output of the
job, signed as always (`fluxqueue.client.frames`).

All jobs of an executor are followed by one listing of what has not ended, since each request to the service
starts a command of Flux.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar, Unpack

from fluxqueue.client.calls import Call, Chunk, PackedCalls, packed
from fluxqueue.client.errors import (
    CallTooLarge,
    ExecutorBroken,
    FluxQueueError,
    InvalidWork,
    NoCluster,
    NoSuchWork,
    ResultUnreadable,
    WorkCancelled,
    WorkerDied,
)
from fluxqueue.client.executor import CallExecutor, results_in_order
from fluxqueue.client.flux_instances import AsyncFlux, AsyncFluxTask, FluxOptions, FluxTaskStatus
from fluxqueue.client.frames import Damaged, TooLarge, from_log, opened
from fluxqueue.client.outcomes import finish
from fluxqueue.client.sync_flux import Flux, FluxTask

__all__ = ["FluxExecutor", "FluxFuture"]

P = ParamSpec("P")
R = TypeVar("R")
_RESULT_BYTES = 1 << 20
_MAX_COMMAND = 600_000
"""Characters of a command; a request has at most 1 MiB."""
_WORD = 100_000
"""Characters of one argument; Linux allows 131,072 bytes."""
_AT_ONCE = 8
_PAUSE_S = 0.5
_SILENT_S = 300.0
_LISTED = 100_000
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_START = """
import base64, io, os, runpy, sys, tempfile, zipfile
os.environ["JOB_COMPLETION_INDEX"] = "0"
with tempfile.TemporaryDirectory() as folder:
    zipfile.ZipFile(io.BytesIO(base64.b64decode("".join(sys.argv[1:])))).extractall(folder)
    sys.argv = [os.path.join(folder, "worker.pyz"), "-"]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class FluxFuture(Future[R]):
    """A future that knows the job of its call."""

    def __init__(self) -> None:
        super().__init__()
        self._task: Callable[[], FluxTask | None] = lambda: None

    @property
    def task(self) -> FluxTask | None:
        """The job of the call inside the instance; None before it is submitted."""
        return self._task()


class FluxExecutor(CallExecutor):
    """Runs calls as jobs of a Flux instance.

    Parameters
    ----------
    flux
        The instance. Its client must stay open as long as the executor.
    python
        The program in the image of the MiniCluster, of the same minor version as this one.
    max_result_bytes
        The largest result of one job, pickled; at most 4 MiB.
    **options
        Of every job; each has one task on one node.

    Raises
    ------
    InvalidWork
        A parameter cannot be right.
    """

    def __init__(
        self,
        flux: Flux,
        *,
        python: str = "python3",
        max_result_bytes: int = _RESULT_BYTES,
        **options: Unpack[FluxOptions],
    ) -> None:
        super().__init__(max_result_bytes, "outputs")
        if several := {"nodes", "tasks"} & set(options):
            raise InvalidWork(
                f"{min(several)}: a call is one task; submit a command with Flux.submit for a job of several"
            )
        self._flux = flux
        self._python = python
        self._options = options
        self._active: _ActiveJobs | None = None
        self._slots: asyncio.Semaphore | None = None

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> FluxFuture[R]:
        """Call a function in a job of the instance.

        Raises
        ------
        CallTooLarge, InvalidWork
            It cannot be shipped.
        RuntimeError
            The executor is shut down.
        """
        future: FluxFuture[R] = FluxFuture()
        self._start(fn, [(args, kwargs)], [future])
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **_ignored: Any,
    ) -> Iterator[R]:
        """Call a function for each item of some iterables, ``chunksize`` calls in each job, and return the
        results in their order.

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
        calls: list[Call] = [(args, {}) for args in zip(*iterables, strict=False)]
        futures: list[FluxFuture[R]] = [FluxFuture() for _ in calls]
        for start in range(0, len(calls), chunksize):
            self._start(fn, calls[start : start + chunksize], futures[start : start + chunksize])
        return results_in_order(futures, deadline)

    def _start(self, function: Callable[..., Any], chunk: Chunk, futures: Sequence[FluxFuture[Any]]) -> None:
        calls = packed(function, [chunk], self._max_bytes)
        job = _CallJob(
            self._flux.asynchronous,
            _command(self._python, calls),
            self._options,
            calls,
            futures,
            self._max_bytes,
        )
        portal = self._flux.portal

        def task() -> FluxTask | None:
            return FluxTask(portal, job.task) if job.task is not None else None

        for future in futures:
            future._task = task
        self._begin(futures, lambda: portal.start(self._run(job)))

    async def _run(self, job: _CallJob) -> None:
        if self._active is None or self._slots is None:
            self._active, self._slots = _ActiveJobs(self._flux.asynchronous), asyncio.Semaphore(_AT_ONCE)
        await job.run(self._active, self._slots)


class _ActiveJobs:
    """The jobs of an instance that have not ended, in one request for everybody who asks."""

    def __init__(self, flux: AsyncFlux) -> None:
        self._flux = flux
        self._asking: asyncio.Task[Mapping[int, str]] | None = None

    async def states(self) -> Mapping[int, str]:
        """Return the state of each by its number, as it is after this call."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Mapping[int, str]:
        await asyncio.sleep(_PAUSE_S)
        self._asking = None  # who asks from now on needs a newer answer
        return {int(each.raw["id"]): each.state for each in await self._flux.jobs(active=True, limit=_LISTED)}


class _CallJob:
    """The calls of one job on their way; `run` follows them to their end."""

    def __init__(
        self,
        flux: AsyncFlux,
        command: Sequence[str],
        options: FluxOptions,
        calls: PackedCalls,
        futures: Sequence[FluxFuture[Any]],
        max_bytes: int,
    ) -> None:
        self._flux = flux
        self._command = command
        self._options = options
        self._calls = calls
        self._futures = futures
        self._max_bytes = max_bytes
        self._told: set[FluxFuture[Any]] = set()
        self.task: AsyncFluxTask | None = None

    async def run(self, active: _ActiveJobs, slots: asyncio.Semaphore) -> None:
        """Submit the job and set the futures. Every future is done afterwards."""
        try:
            async with slots:
                if not self._is_wanted():
                    return
                self.task = await self._flux.submit(self._command, **self._options)
            if (status := await self._end(self.task, active)) is not None:
                async with slots:
                    await self._take(self.task, status)
        except asyncio.CancelledError:
            self._fail(
                ExecutorBroken(
                    "the client was closed while calls were running: their jobs go on inside the instance"
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

    async def _end(self, task: AsyncFluxTask, active: _ActiveJobs) -> FluxTaskStatus | None:
        """Wait for the end of the job, and return its status; None if nobody wants the results any more."""
        number, answered = _number(task.id), time.monotonic()
        while True:
            try:
                state = (await active.states()).get(number)
                if not self._is_wanted():
                    await task.cancel()
                    return None
                if state == "RUN":
                    self._mark_running()
                # What was submitted a moment ago may not be listed yet.
                if state is None and (status := await task.status()).ended:
                    return status
                answered = time.monotonic()
            except (NoCluster, NoSuchWork):
                if time.monotonic() - answered > _SILENT_S:
                    raise

    async def _take(self, task: AsyncFluxTask, status: FluxTaskStatus) -> None:
        name = f"{self._calls.task}.0"
        try:
            text = from_log([line async for line in task.output()], name)
            payload = opened(text, self._calls.key, name, self._max_bytes)
        except TooLarge as error:
            self._fail(
                ResultUnreadable(f"Flux job {task.id}: its result cannot be read: {error}: return less")
            )
        except Damaged as error:
            self._fail(_without_result(task.id, status, error))
        else:
            # of a short job nobody saw that it ran; what has a result cannot be cancelled any more
            self._mark_running()
            # In a thread, since callbacks of the futures may use the client.
            await asyncio.to_thread(finish, self._futures, payload)

    def _is_wanted(self) -> bool:
        """True if any future is still open."""
        return not all(future.done() for future in self._futures)

    def _mark_running(self) -> None:
        for future in self._futures:
            if not future.running() and not future.done() and not future.set_running_or_notify_cancel():
                self._told.add(future)

    def _tell_cancelled(self) -> None:
        """Tell who waits for cancelled futures that nobody works on them."""
        for future in self._futures:
            if future.cancelled() and future not in self._told:
                self._told.add(future)
                future.set_running_or_notify_cancel()

    def _fail(self, error: FluxQueueError) -> None:
        for future in self._futures:
            if not future.done():
                with contextlib.suppress(Exception):  # cancelled at this moment
                    future.set_exception(error)


def _command(python: str, calls: PackedCalls) -> list[str]:
    """Return the command that makes the calls.

    Raises
    ------
    CallTooLarge
        It would be longer than a command can be.
    """
    packing = io.BytesIO()
    with zipfile.ZipFile(packing, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in calls.data.items():
            archive.writestr(name, content)
    text = base64.b64encode(packing.getvalue()).decode()
    if len(text) > _MAX_COMMAND:
        raise CallTooLarge(
            f"the function has {len(text)} characters with its arguments, and at most {_MAX_COMMAND} are "
            "shipped in one job: pass the place of the data (a volume, "
            "an object store) instead of the data, or use smaller chunks"
        )
    return [python, "-c", _START, *(text[start : start + _WORD] for start in range(0, len(text), _WORD))]


def _number(jobid: str) -> int:
    """Return the number of a job from its id in base 58 (RFC 19), such as ``f2ABC``."""
    number = 0
    for letter in jobid[1:]:
        number = number * 58 + _BASE58.index(letter)
    return number


def _without_result(jobid: str, status: FluxTaskStatus, error: Damaged) -> FluxQueueError:
    if status.result == "CANCELED":
        return WorkCancelled(f"Flux job {jobid} was cancelled by somebody: submit the call again")
    if status.result == "TIMEOUT":
        return WorkerDied(
            f"Flux job {jobid} ran longer than its duration: give a longer one, or use smaller chunks"
        )
    if status.succeeded:
        return ResultUnreadable(
            f"Flux job {jobid}: the result in its output cannot be read ({error}): have it print less"
        )
    code = f", exit code {status.exit_code}" if status.exit_code is not None else ""
    return WorkerDied(f"Flux job {jobid} ended as {status.result}{code}, without a result: read its output")
