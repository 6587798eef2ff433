"""Jobs inside a Flux instance: the client of the REST service of a MiniCluster (docs/minicluster.md).

A MiniCluster has its nodes from the queue. Inside it, Flux is the scheduler: jobs are submitted, awaited,
read and cancelled here with the same words as workloads, and cost the cluster nothing.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fluxqueue.client.errors import InvalidWork, NoCluster, WaitTimeout, WorkFailed
from fluxqueue.client.waiting import Timeout, deadline_of

if TYPE_CHECKING:
    from fluxqueue.client.flux_connections import FluxConnection

__all__ = ["AsyncFlux", "AsyncFluxTask", "FluxNodes", "FluxOptions", "FluxTaskStatus"]

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_MAX_BODY = 2**20


class FluxOptions(TypedDict, total=False):
    """What a job inside the instance may ask for; what is left out, Flux decides.

    Attributes
    ----------
    nodes, tasks, cores_per_task, gpus_per_task
        Its size.
    duration
        Its time limit: a `timedelta`, or seconds.
    environment
        Variables, in addition to those of the application.
    working_directory, name
        As in `flux submit`.
    urgency
        From 0 (held) to 31.
    """

    nodes: int
    tasks: int
    cores_per_task: int
    gpus_per_task: int
    duration: timedelta | float
    environment: Mapping[str, str]
    working_directory: str
    name: str
    urgency: int


@dataclass(frozen=True)
class FluxTaskStatus:
    """The status of a job inside the instance.

    Attributes
    ----------
    id, name, state, result
        As Flux has them: a state is ``DEPEND``, ``PRIORITY``, ``SCHED``, ``RUN``, ``CLEANUP`` or
        ``INACTIVE``; a result is ``COMPLETED``, ``FAILED``, ``CANCELED`` or ``TIMEOUT``, and empty before the
        end.
    exit_code
        Of the job; None before the end.
    raw
        All that Flux says.
    """

    id: str
    name: str
    state: str
    result: str
    exit_code: int | None
    raw: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """True if it has ended."""
        return self.state == "INACTIVE"

    @property
    def succeeded(self) -> bool:
        """True if it has ended with success."""
        return self.result == "COMPLETED"


@dataclass(frozen=True)
class FluxNodes:
    """Nodes of the instance in one state, with the cores and GPUs of all of them."""

    state: str
    nodes: tuple[str, ...]
    cores: int
    gpus: int


class AsyncFlux:
    """A Flux instance.

    Parameters
    ----------
    connection
        How it is reached; `AsyncClient.flux` makes one.
    """

    def __init__(self, connection: FluxConnection) -> None:
        self.connection = connection

    async def submit(self, command: Sequence[str], **options: Unpack[FluxOptions]) -> AsyncFluxTask:
        """Submit a job.

        Parameters
        ----------
        command
            The program and its arguments; no shell interprets them.
        **options
            See `FluxOptions`.

        Raises
        ------
        InvalidWork
            The command or an option cannot be right.
        FluxRefused
            Flux refuses the job.
        """
        if isinstance(command, str) or not command:
            raise InvalidWork("command: write a list of words, such as ['hostname', '-f']")
        body = {"command": list(command), **_body(options)}
        size = len(json.dumps(body))
        if size > _MAX_BODY:
            raise InvalidWork(
                f"the job has {size} bytes with its command, and a request at most {_MAX_BODY}: "
                "put the data into a file"
            )
        answer = json.loads(await self.connection.call("POST", "/v1/jobs", body=body))
        return AsyncFluxTask(self.connection, str(answer["id"]))

    def job(self, jobid: str) -> AsyncFluxTask:
        """Return the job with an id."""
        return AsyncFluxTask(self.connection, jobid)

    async def jobs(self, *, active: bool = False, limit: int = 1000) -> list[FluxTaskStatus]:
        """Return the jobs, the newest first; only those that have not ended, if ``active``."""
        query = {"active": str(active).lower(), "limit": str(limit)}
        return [
            _status(each) for each in json.loads(await self.connection.call("GET", "/v1/jobs", query=query))
        ]

    async def nodes(self) -> list[FluxNodes]:
        """Return the nodes by state."""
        groups = json.loads(await self.connection.call("GET", "/v1/nodes"))
        return [
            FluxNodes(each["state"], tuple(each["nodes"]), each["cores"], each["gpus"]) for each in groups
        ]

    async def ready(self, *, timeout: Timeout = None) -> None:
        """Wait until the instance answers commands.

        Raises
        ------
        WaitTimeout
            It does not in time; the message says why not.
        """
        deadline, pause_s = deadline_of(timeout), _FIRST_PAUSE_S
        while True:
            try:
                await self.connection.call("GET", "/readyz")
                return
            except NoCluster as error:
                if deadline is not None and time.monotonic() + pause_s > deadline:
                    raise WaitTimeout(str(error)) from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)


class AsyncFluxTask:
    """A job inside a Flux instance.

    Attributes
    ----------
    id
        Its id in Flux.
    """

    def __init__(self, connection: FluxConnection, jobid: str) -> None:
        self._connection = connection
        self.id = jobid

    def __repr__(self) -> str:
        return f"<Flux job {self.id}>"

    async def status(self) -> FluxTaskStatus:
        """Return its status now."""
        return _status(
            {**json.loads(await self._connection.call("GET", f"/v1/jobs/{self.id}")), "f58": self.id}
        )

    async def state(self) -> str:
        """Return its state now."""
        return (await self.status()).state

    async def wait(self, *, timeout: Timeout = None, check: bool = False) -> FluxTaskStatus:
        """Wait until it has ended.

        Raises
        ------
        WaitTimeout
            It has not in time; it goes on.
        WorkFailed
            It ended without success, and ``check`` is true.
        """
        deadline, pause_s = deadline_of(timeout), _FIRST_PAUSE_S
        while not (status := await self.status()).ended:
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeout(
                    f"Flux job {self.id} is still {status.state}: wait longer, "
                    "or see the nodes of the instance"
                )
            left_s = pause_s if deadline is None else min(pause_s, max(0.0, deadline - time.monotonic()))
            await asyncio.sleep(left_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        if check and not status.succeeded:
            code = f", exit code {status.exit_code}" if status.exit_code is not None else ""
            raise WorkFailed(
                f"Flux job {self.id} ended as {status.result or status.state}{code}: read its output"
            )
        return status

    async def cancel(self) -> None:
        """Cancel it, if it has not ended."""
        await self._connection.call("DELETE", f"/v1/jobs/{self.id}")

    async def output(self, *, follow: bool = False) -> AsyncIterator[str]:
        """Yield its output, standard output and error together, by lines; with ``follow`` until it ends."""
        pending = ""
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a piece may end within a character
        async for piece in self._connection.pieces(
            f"/v1/jobs/{self.id}/output{'?follow=true' if follow else ''}"
        ):
            *lines, pending = (pending + text.decode(piece)).split("\n")
            for line in lines:
                yield line
        if pending := pending + text.decode(b"", final=True):
            yield pending


def _body(options: FluxOptions) -> dict[str, Any]:
    body: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    if unknown := [key for key in body if key not in FluxOptions.__annotations__]:
        raise InvalidWork(f"{unknown[0]}: no such option: write {', '.join(FluxOptions.__annotations__)}")
    if (duration := body.pop("duration", None)) is not None:
        body["duration_s"] = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if "environment" in body:
        body["environment"] = {key: str(value) for key, value in body["environment"].items()}
    return body


def _status(found: Mapping[str, Any]) -> FluxTaskStatus:
    code = found.get("returncode")
    ended = str(found.get("state", "")) == "INACTIVE"
    return FluxTaskStatus(
        id=str(found.get("f58") or found.get("id", "")),
        name=str(found.get("name", "")),
        state=str(found.get("state", "")),
        result=str(found.get("result", "")) if ended else "",
        exit_code=int(code) if ended and isinstance(code, int | float) else None,
        raw=found,
    )
