"""Liveness and readiness over plain HTTP for the kubelet, answered by a thread of its own.

The kubelet ends a process whose liveness probe fails. So the answer waits neither for the *main loop*, in
which the program computes, nor for the connections of another port: the thread has its own event loop, its
own socket and its own limits.

- **The main loop is busy.** With each probe the thread asks it for an answer, and meanwhile the process
  counts as alive.
- **The main loop is stuck.** It has owed an answer for `STUCK_S`: liveness fails, and the kubelet ends the
  process after some more probes. A leader has ended by itself before that (`fluxqueue.kube.lease_thread`).
- **Readiness** is computed in the main loop, because it reads what changes there. Without an answer the
  process is not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fluxqueue.serving.connections import ConnectionLimits
from fluxqueue.serving.guarded_server import GuardedServer, listen

__all__ = ["LIMITS", "STUCK_S", "HealthServer"]

STUCK_S: Final = 60.0
"""Seconds for which a main loop that does not answer counts as busy."""
LIMITS: Final = ConnectionLimits(
    connections=64,
    held_bytes=2**16,
    body_bytes=0,
    request_s=5.0,
    turn_s=5.0,
    response_s=10.0,
    idle_s=5.0,
    one_request=True,
)
_ANSWER_S: Final = 4.0
_FINISH_S: Final = 1
_NO_ANSWER: Final = {"ready": False, "missing": ["event-loop"]}

Answer = tuple[bool, Mapping[str, Any]]
"""Whether the program is ready, and the document that says so."""


class HealthServer:
    """The server of one program.

    Parameters
    ----------
    host, port
        Where to listen.
    ready
        Called in the main loop for the answer to ``/readyz``. Any pod of the cluster may ask for it.
    stuck_s, answer_s
        Seconds without an answer of the main loop after which ``/healthz`` and ``/readyz`` fail.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """

    def __init__(
        self,
        host: str,
        port: int,
        ready: Callable[[], Answer],
        *,
        stuck_s: float = STUCK_S,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._listening = listen(host, port)
        self._ready = ready
        self._stuck_s = stuck_s
        self._answer_s = answer_s

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listening.getsockname()[1])

    async def serve(self) -> None:
        """Serve until cancelled; the loop of this call is the main loop."""
        main = asyncio.get_running_loop()
        ended: asyncio.Future[None] = main.create_future()
        server = GuardedServer(self._app(_MainLoop(main)), self._listening, LIMITS, finish_s=_FINISH_S)
        thread = _Thread(server, lambda error: main.call_soon_threadsafe(_settle, ended, error))
        thread.start()
        try:
            await asyncio.shield(ended)
        finally:
            thread.stop()

    def _app(self, main: _MainLoop) -> Starlette:
        async def healthz(_request: Request) -> Response:
            silent_s = main.silent_s()
            if silent_s > self._stuck_s:
                return PlainTextResponse(f"the event loop has not answered for {silent_s:.0f} s\n", 503)
            return PlainTextResponse("ok\n")

        async def readyz(_request: Request) -> Response:
            try:
                ready, document = await main.ask(self._ready, self._answer_s)
            except TimeoutError:
                ready, document = False, _NO_ANSWER
            return JSONResponse(document, 200 if ready else 503)

        return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])


class _MainLoop:
    """The main loop, as another thread asks it; it has at most one question of each kind to answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked_at: float | None = None
        self._asking: Future[Answer] | None = None

    def silent_s(self) -> float:
        """Seconds for which it owes an answer; it is asked for the next one."""
        now, asked_at = time.monotonic(), self._asked_at
        if asked_at is None:
            self._asked_at = asked_at = now
            self._later(self._answered)
        return now - asked_at

    async def ask(self, question: Callable[[], Answer], limit_s: float) -> Answer:
        """Return its answer; many who ask at the same time get the same one.

        Raises
        ------
        TimeoutError
            There is none within the limit.
        """
        if self._asking is None or self._asking.done():
            self._asking = Future()
            self._later(functools.partial(_answer, self._asking, question))
        async with asyncio.timeout(limit_s):
            return await asyncio.shield(asyncio.wrap_future(self._asking))

    def _answered(self) -> None:
        self._asked_at = None

    def _later(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed, and does not answer
            self._loop.call_soon_threadsafe(function)


class _Thread:
    """Runs the server in a loop of its own."""

    def __init__(self, server: GuardedServer, ended: Callable[[BaseException | None], object]) -> None:
        self._server = server
        self._ended = ended
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._server.should_exit = True

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._server.serve())
        except BaseException as raised:  # it is raised in the main loop
            error = raised
        with contextlib.suppress(RuntimeError):  # the main loop is closed
            self._ended(error)


def _answer(asking: Future[Answer], question: Callable[[], Answer]) -> None:
    try:
        asking.set_result(question())
    except Exception as error:
        asking.set_exception(error)


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
