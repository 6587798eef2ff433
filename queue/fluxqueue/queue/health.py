"""Liveness and readiness of a replica of the queue or of the scheduler, over plain HTTP, for the kubelet.

The leader is ready when work can flow: its caches are filled, and Postgres and Fluxion answer where it needs them. A follower is ready
when its caches are filled, so that it can take over at any time. Any pod of the cluster may ask, so the answer has only the role and the
names of the conditions that do not hold; ``/status`` of the HTTPS port has their sentences (`fluxqueue.queue.admin.server`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import uvicorn
from prometheus_client import Gauge
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fluxqueue.certs.https import EmbeddedServer
from fluxqueue.queue.admin.connections import bounded_config
from fluxqueue.queue.metrics import ROLE

__all__ = ["ReplicaRole", "make_server", "show_role"]


class ReplicaRole(enum.StrEnum):
    """What a replica does."""

    STARTING = "starting"
    FOLLOWER = "follower"
    LEADER = "leader"


def show_role(role: ReplicaRole, gauge: Gauge = ROLE) -> ReplicaRole:
    """Set the gauge to 1 for this role and to 0 for the others, and return the role."""
    for each in ReplicaRole:
        gauge.labels(str(each)).set(each is role)
    return role


Conditions = Callable[[], Mapping[str, str]]


def make_server(host: str, port: int, conditions: Conditions, role: Callable[[], ReplicaRole]) -> uvicorn.Server:
    """Make the server. It runs in the caller's loop and leaves signals to the program.

    Parameters
    ----------
    host, port
        Where to listen.
    conditions
        Return what is missing now, as name -> sentence; empty if the replica is ready.
    role
        Return the role this replica has now.
    """

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        missing = sorted(conditions())
        return JSONResponse({"ready": not missing, "role": role(), "missing": missing}, status_code=503 if missing else 200)

    return EmbeddedServer(bounded_config(Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)]), host, port))
