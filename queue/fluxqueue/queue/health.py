"""Health, readiness and metrics of the queue service over plain HTTP.

Ready means for the leader that work flows: caches filled, Postgres and Fluxion answering. A follower is ready when its caches are filled,
so that it could take over at any moment. Each thing that is not so is named, so that `kubectl describe pod` says why, and the role is told
with it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fluxqueue.queue.metrics import ROLE

__all__ = ["Role", "make_server"]


class Role(enum.StrEnum):
    """What a replica does."""

    STARTING = "starting"
    FOLLOWER = "follower"
    LEADER = "leader"

    def tell(self) -> Role:
        """Show this role, and no other, in the metrics."""
        for role in Role:
            ROLE.labels(str(role)).set(role is self)
        return self


Conditions = Callable[[], Mapping[str, str]]


def make_server(host: str, port: int, conditions: Conditions, role: Callable[[], Role], more: Sequence[Route] = ()) -> uvicorn.Server:
    """Make the server; it runs in the caller's loop and leaves signals alone.

    Parameters
    ----------
    host, port
        Where to listen.
    conditions
        What is not as it should be at this moment: name -> sentence; empty when all is well.
    role
        What this replica does at this moment.
    more
        Further paths.
    """

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        missing = dict(conditions())
        return JSONResponse({"ready": not missing, "role": role(), "missing": missing}, status_code=503 if missing else 200)

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics), *more])
    config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    return uvicorn.Server(config)
