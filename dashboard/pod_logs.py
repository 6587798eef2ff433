"""What a container prints: its last lines, and the lines as they come, in the name of the person.

The API server is asked with his own token, so RBAC decides (`get` on `pods/log`); while a log is followed, it
is asked again each ten seconds whether he still may. A log that is faster than it is shown is read more
slowly, so it waits at its node. What is read, and how fast, is bounded, as anybody may print anything. A
container that is started again and again is followed once for each run.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.pods import ContainerStateTerminated, ContainerStatus, Pod
from fluxqueue.api.texts import pictured
from fluxqueue.cli.pod_placement import pod_state
from fluxqueue.dashboard.access import Right
from fluxqueue.dashboard.job_objects import has_pod
from fluxqueue.dashboard.pages.job_page import find_job
from fluxqueue.dashboard.site import Asked, NoSuchPage, Site
from fluxqueue.dashboard.viewers import NoApi, not_in_his_name
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api

__all__ = ["TAIL", "NoLog", "PodLog", "cleaned", "find_log", "log_events", "tail"]

TAIL: Final = 500
"""Lines that are shown at first."""
_TAIL_BYTES: Final = 256 << 10
_BYTES_PER_S: Final = 64 << 10
_BURST_BYTES: Final = 512 << 10
_MOST_BYTES: Final = 16 << 20
"""Of one stream."""
_EVENT_BYTES: Final = 32 << 10
_LONGEST_LINE: Final = 4_000
_LOOK_S: Final = 10.0
_AGAIN_S: Final = 5.0
_IDLE_S: Final = 3_600.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_COMMANDS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Of terminals: colours, movements of the cursor, titles."""


class NoLog(Exception):
    """There is no log; the message says why. ``later`` is true if there may be one soon."""

    def __init__(self, why: str, *, later: bool = False) -> None:
        super().__init__(why)
        self.later = later


@dataclass(frozen=True, slots=True)
class PodLog:
    """The log of a container; ``previous``: of its run before the last restart."""

    pod: Pod
    container: str
    previous: bool = False

    @property
    def containers(self) -> list[str]:
        """The containers of the pod, in the order of their starts."""
        spec = self.pod.spec
        return [each.name for each in (*(spec.init_containers or ()), *spec.containers)]

    @property
    def status(self) -> ContainerStatus | None:
        """What the node says of the container; None: nothing yet."""
        status = self.pod.status
        known = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        return next((each for each in known if each.name == self.container), None)

    @property
    def restarts(self) -> int:
        """How often the container was started again."""
        return self.status.restart_count if self.status is not None else 0

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return PODS.path(self.pod.metadata.namespace, self.pod.metadata.name, "log")

    @property
    def query(self) -> dict[str, str]:
        """The parameters of its last lines."""
        before = {"previous": "true"} if self.previous else {}
        return {"container": self.container, "tailLines": str(TAIL), **before}


async def find_log(api: Api, job: FluxJob, parameters: Mapping[str, str]) -> PodLog:
    """Return the log that the parameters of an address name: ``pod``, ``container``, ``previous``.

    Raises
    ------
    NoLog
        The job has no such pod, the pod no such container, or it may not be read.
    """
    name, container = parameters.get("pod", ""), parameters.get("container", "")
    gone = f"The pod {name[:253]} is not there: it was deleted, and its log with it."
    if not _NAME.fullmatch(name):
        raise NoLog("This is not the name of a pod: choose one of the list.")
    try:
        found = await api.page(PODS, job.metadata.namespace, field_selector=f"metadata.name={name}", limit=1)
    except ApiError as error:
        raise _no_log(error, gone) from None
    pod = next((pod for pod in found.items if has_pod(job, pod)), None)
    if pod is None:
        raise NoLog(gone)
    log = PodLog(pod, container, parameters.get("previous", "") == "1")
    if not container and pod.spec.containers:
        log = PodLog(pod, pod.spec.containers[0].name, log.previous)
    if log.container not in log.containers:
        raise NoLog(f"The pod {name} has no container {container[:63]!r}: choose one of the list.")
    return log


async def tail(api: Api, log: PodLog) -> list[str]:
    """Return the last lines, fewer if they are long.

    Raises
    ------
    NoLog
        It has not printed anything yet, or it cannot be read.
    """
    _require_started(log)
    lines, data = TAIL, b""
    try:
        # what is limited are the first bytes of the last lines: of long lines, fewer are the last
        while lines and (not data or len(data) >= _TAIL_BYTES):
            query = {**log.query, "tailLines": str(lines), "limitBytes": str(_TAIL_BYTES)}
            data = await api.request("GET", log.path, query=query, most_bytes=_TAIL_BYTES)
            lines = lines // 8 if data else 0
    except ApiError as error:
        raise _unread(log, error) from None
    return [cleaned(line) for line in data.removesuffix(b"\n").split(b"\n")] if data else []


def cleaned(line: bytes) -> str:
    """Return a line without what commands a terminal; a long one is cut off."""
    text = _COMMANDS.sub("", line[: 4 * _LONGEST_LINE].decode(errors="replace"))
    text = pictured(text.rstrip("\r"))
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} ..."


async def log_events(site: Site, asked: Asked, *, look_s: float = _LOOK_S) -> AsyncGenerator[bytes, None]:
    """Yield events for a browser that follows a log, until it ends or may not be seen any more.

    Parameters
    ----------
    site, asked
        Whose log it is; the parameters are those of `find_log`.
    look_s
        How often it is asked whether the person still may.
    """
    yield b"retry: 5000\n\n"
    waits = ""
    pace = _Pace()
    read: int | None = None
    while not (why := await _forbidden(site, asked)):
        try:
            api = site.door.api(asked.viewer)
            log = await find_log(api, find_job(site, asked), asked.parameters)
            _require_started(log)
            _require_another_run(log, read)
            async with aclosing(_followed(site, asked, api, log, pace, look_s)) as events:
                async for event in events:
                    yield event
            read = log.restarts
            log = await find_log(api, find_job(site, asked), asked.parameters)
            why = pace.problem or _ended(log)
            if why:
                break
            waits = ""
        except NoLog as error:
            if not error.later:
                why = str(error)
                break
            yield _event({"wait": str(error)}) if str(error) != waits else b": nothing new\n\n"
            waits = str(error)
        except (NoSuchPage, NoApi) as error:
            why = f"{str(error)[:1].upper()}{str(error)[1:]}"
            break
        await asyncio.sleep(_AGAIN_S)
    yield b"event: over\n" + _event({"why": why})


async def _followed(
    site: Site, asked: Asked, api: Api, log: PodLog, pace: _Pace, look_s: float
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a log until it ends, or ``pace`` has a problem."""
    party = asked.viewer.person.party
    query = {**log.query, "follow": "true"}
    lines = api.lines(log.path, query=query, idle_s=_IDLE_S, longest=_LONGEST_LINE)
    begin, look_at = True, time.monotonic() + look_s
    async with aclosing(lines), aclosing(_or_none(lines, look_s)) as pieces:
        try:
            async for some in pieces:
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + look_s
                    if await _forbidden(site, asked):
                        return
                if some is None:
                    yield b": nothing new\n\n"
                    continue
                for part in _parts(some) if some or not begin else [[]]:
                    await site.shares.wait(party)
                    event = await site.shares.run(party, _written(part, begin=begin))
                    begin = False
                    yield event
                    await asyncio.sleep(pace.pause_s(len(event)))
                    if pace.problem:
                        return
        except ApiError as error:
            raise _unread(log, error) from None


async def _or_none(
    lines: AsyncIterator[list[bytes]], each_s: float
) -> AsyncGenerator[list[bytes] | None, None]:
    """Yield what another iterator does, and None while that takes long."""
    coming: asyncio.Future[list[bytes]] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(lines.__anext__())
            done, _ = await asyncio.wait({coming}, timeout=each_s)
            if not done:
                yield None
                continue
            try:
                some = coming.result()
            except StopAsyncIteration:
                return
            finally:
                coming = None
            yield some
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


class _Pace:
    """How fast a stream may be, and how much it may send."""

    def __init__(self) -> None:
        self._sent = 0
        self._free_at = 0.0
        self.problem = ""

    def pause_s(self, size: int) -> float:
        """Count what was sent; return how long to wait."""
        now = time.monotonic()
        self._sent += size
        if self._sent > _MOST_BYTES:
            self.problem = f"{_MOST_BYTES >> 20} MiB were shown. Follow again for what comes."
        self._free_at = max(self._free_at, now - _BURST_BYTES / _BYTES_PER_S) + size / _BYTES_PER_S
        return max(0.0, self._free_at - now)


def _parts(lines: Iterable[bytes]) -> Iterable[list[bytes]]:
    """Divide lines into what fits into an event."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > _EVENT_BYTES:
            yield part
            part, size = [], 0
        part.append(line)
        size += min(len(line), _LONGEST_LINE) + 1
    if part:
        yield part


async def _written(lines: Iterable[bytes], *, begin: bool) -> bytes:
    return _event({"lines": [cleaned(line) for line in lines], **({"begin": True} if begin else {})})


async def _forbidden(site: Site, asked: Asked) -> str:
    """Return why a log may not be seen any more; empty if it may."""
    if not await site.door.holds(asked.viewer.session):
        return "Your session is over: sign in again."
    namespace = asked.path["namespace"]
    visible = await site.visible(asked.viewer, namespace)
    right = Right("get", "", "pods", namespace, asked.parameters.get("pod", ""), "log")
    if visible.shows(namespace) and await site.door.access.may(asked.viewer.person, right):
        return ""
    return (
        f"You may not read logs in the namespace {namespace}, or the API server does not say that you may: "
        "the role view there lets you."
    )


def _require_started(log: PodLog) -> None:
    status = log.status
    if log.previous and not log.restarts:
        raise NoLog(
            f"The container {log.container} was not started again, so it has no log of an earlier run."
        )
    if not log.previous and not log.restarts and (status is None or status.state.waiting is not None):
        why = (status.state.waiting.reason if status and status.state.waiting else "") or pod_state(log.pod)
        raise NoLog(f"The container {log.container} has not started yet ({why}).", later=not log.pod.terminal)


def _require_another_run(log: PodLog, read: int | None) -> None:
    """Raise `NoLog` while the last run of a container is the one that was ``read``, and it has ended."""
    status = log.status
    if status is None or log.restarts != read or not (status.state.waiting or status.state.terminated):
        return
    ended = status.state.terminated or status.last_state.terminated
    how = f" with {_exit(ended)}" if ended is not None else ""
    raise NoLog(f"The container {log.container} ended{how}; it is started again.", later=True)


def _ended(log: PodLog) -> str:
    """Return how a container ended; empty if it goes on, or is started again."""
    if log.previous:
        return "This is all of the run before the last restart."
    ended = log.status.state.terminated if log.status is not None else None
    if ended is None:
        return "Its pod has ended." if log.pod.terminal else ""
    return "" if _starts_again(log, ended) else f"The container has ended, with {_exit(ended)}."


def _starts_again(log: PodLog, ended: ContainerStateTerminated) -> bool:
    spec = log.pod.spec
    policy = spec.restart_policy
    for each in spec.init_containers or ():
        if each.name == log.container:
            policy = each.restart_policy or ("OnFailure" if policy == "Always" else policy)
    again = policy == "Always" or (policy == "OnFailure" and ended.exit_code != 0)
    return again and not log.pod.terminal


def _exit(ended: ContainerStateTerminated) -> str:
    return f"exit code {ended.exit_code}{f', {ended.reason}' if ended.reason else ''}"


def _unread(log: PodLog, error: ApiError) -> NoLog:
    name = log.pod.metadata.name
    if error.status >= 500 or error.status == 0:
        node = log.pod.spec.node_name or "its node"
        return NoLog(
            f"The log of {name} does not come from the node {node}: {pictured(error.message)[:500]}."
        )
    return _no_log(error, f"The pod {name} is gone, and its log with it.", later=error.status == 400)


def _no_log(error: ApiError, gone: str, *, later: bool = False) -> NoLog:
    if isinstance(error, NotFound):
        return NoLog(gone)
    if isinstance(error, Forbidden):
        why = not_in_his_name(error) or "you may not read pods and their logs here: the role view lets you"
        return NoLog(f"{why[0].upper()}{why[1:]}.")
    return NoLog(f"The log cannot be read: {pictured(error.message)[:500]}.", later=later)


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
