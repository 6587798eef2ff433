"""The output of the pods of a workload, each line with its pod.

Without ``follow`` the output so far is read pod by pod, at most `MAX_BYTES` of each. With it, the pods are
read at the same time, as they start, until the workload has ended; then at most `MAX_FOLLOWED` pods can be
read, because each takes a connection to the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluxqueue.api.pods import Pod
from fluxqueue.client.errors import LogsUnavailable
from fluxqueue.kube.errors import ApiError, NotFound, ServerError
from fluxqueue.kube.kinds import PODS

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["MAX_BYTES", "MAX_FOLLOWED", "LogLine", "LogOptions", "PodLogs"]

MAX_BYTES = 16 * 2**20
MAX_FOLLOWED = 64
_IDLE_S = 4 * 3600.0
_POLL_S = 1.0
_BUFFERED = 1_000
_STARTED = ("Running", "Succeeded", "Failed")


@dataclass(frozen=True)
class LogLine:
    """A line of output: the pod, its rank (completion index) if it has one,
    and the text without the newline.
    """

    pod: str
    rank: int | None
    text: str

    def __str__(self) -> str:
        return f"[{self.pod if self.rank is None else self.rank}] {self.text}"


@dataclass(frozen=True)
class LogOptions:
    """What is read: only the last ``tail`` lines of each pod, of a container that is not the first one."""

    follow: bool = False
    tail: int | None = None
    container: str = ""

    def query(self) -> dict[str, str]:
        """Return the parameters of a request."""
        query = {"follow": "true"} if self.follow else {"limitBytes": str(MAX_BYTES)}
        if self.tail is not None:
            query["tailLines"] = str(self.tail)
        return query | ({"container": self.container} if self.container else {})


class PodLogs:
    """Reads the output of pods.

    Parameters
    ----------
    api
        The API server.
    pods
        Returns the pods of the workload, as they are now.
    ended
        Returns true when no more pods will start.
    """

    def __init__(
        self, api: Api, pods: Callable[[], Awaitable[Sequence[Pod]]], ended: Callable[[], Awaitable[bool]]
    ) -> None:
        self._api = api
        self._pods = pods
        self._ended = ended

    async def read(self, options: LogOptions) -> AsyncIterator[LogLine]:
        """Yield the lines.

        Raises
        ------
        LogsUnavailable
            No pod has started, or one cannot be read; with the pod and the cause.
        """
        if options.follow:
            async for line in self._follow(options):
                yield line
            return
        pods = [pod for pod in await self._pods() if pod.status.phase in _STARTED]
        if not pods:
            raise LogsUnavailable(
                "no pod of it has started, so there is no output yet: wait for it, or read with follow=True"
            )
        for pod in sorted(pods, key=_place):
            path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
            try:
                text = await self._api.request("GET", path, query=options.query())
            except NotFound:
                continue  # deleted meanwhile
            except ApiError as error:
                raise await self._unavailable(pod, error) from None
            for words in text.removesuffix(b"\n").split(b"\n") if text else ():
                yield LogLine(pod.metadata.name, pod.completion_index, words.decode(errors="replace"))

    async def _follow(self, options: LogOptions) -> AsyncIterator[LogLine]:
        lines: asyncio.Queue[LogLine | Exception | None] = asyncio.Queue(_BUFFERED)
        reading = asyncio.create_task(self._read_all(options, lines))
        try:
            while (line := await lines.get()) is not None:
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_all(self, options: LogOptions, lines: asyncio.Queue[LogLine | Exception | None]) -> None:
        """Read each pod once it has started, and put None after the last line."""
        tasks: dict[str, asyncio.Task[bool]] = {}
        try:
            over = False
            while not over:
                over = await self._ended()
                for pod in await self._pods():
                    task = tasks.get(pod.metadata.uid)
                    if (task is not None and not _found_nothing(task)) or pod.status.phase not in _STARTED:
                        continue
                    if task is None and len(tasks) >= MAX_FOLLOWED:
                        raise LogsUnavailable(
                            f"it has more than {MAX_FOLLOWED} pods: follow those that you need with kubectl "
                            "logs -f"
                        )
                    tasks[pod.metadata.uid] = asyncio.create_task(self._read_one(pod, options, lines))
                if not over:
                    await asyncio.sleep(_POLL_S)
                for task in tasks.values():
                    if task.done():
                        task.result()  # what keeps one pod from being read ends all
            await asyncio.gather(*tasks.values())
            await lines.put(None)
        except Exception as error:
            await lines.put(error)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _read_one(
        self, pod: Pod, options: LogOptions, lines: asyncio.Queue[LogLine | Exception | None]
    ) -> bool:
        """Read a pod to its end; return false if there is no output:
        the pod is gone, or its node does not know it yet.
        """
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
        try:
            async with aclosing(self._api.lines(path, query=options.query(), idle_s=_IDLE_S)) as pieces:
                async for piece in pieces:
                    for line in piece:
                        await lines.put(
                            LogLine(pod.metadata.name, pod.completion_index, line.decode(errors="replace"))
                        )
        except NotFound:
            return False
        except ApiError as error:
            raise await self._unavailable(pod, error) from None
        return True

    async def _unavailable(self, pod: Pod, error: ApiError) -> LogsUnavailable:
        """Return why the output of a pod cannot be read;
        the API server cannot reach a node that is simulated.
        """
        from fluxqueue.cli.simulated_nodes import is_simulated, nothing_runs_on

        title, node = f"Pod {pod.metadata.namespace}/{pod.metadata.name}", pod.spec.node_name
        if isinstance(error, ServerError) and node:
            with suppress(ApiError):
                if is_simulated(await self._api.request("GET", f"/api/v1/nodes/{node}")):
                    return LogsUnavailable(f"{title} has no output: {nothing_runs_on([node])}")
        helps = "ask for the right to read pods/log" if error.status == 403 else "see kubectl describe pod"
        return LogsUnavailable(f"the output of {title} cannot be read: {error}: {helps}")


def _found_nothing(task: asyncio.Task[bool]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None and not task.result()


def _place(pod: Pod) -> tuple[int, str]:
    return (pod.completion_index or 0, pod.metadata.name)
