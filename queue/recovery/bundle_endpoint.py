"""What a replica tells of itself for `kubectl fluxqueue doctor --bundle`: version, settings, metrics, and the
size of the graph.

The settings are those of the configuration file, which has no secret: connection strings and tokens come from
the environment and from files, and are not part of it. The caller removes what looks like a secret all the
same (`fluxqueue.cli.redaction`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fluxqueue.api.names import OPERATOR_AUDIENCE
from fluxqueue.api.release import version
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.queue.admin.access import Permission
from fluxqueue.queue.admin.server import Endpoint
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.recovery.sweep import Sweeper

__all__ = ["bundle_endpoint"]


def bundle_endpoint(
    config: QueueConfig, registry: CollectorRegistry, leader: Callable[[], Sweeper | None]
) -> Endpoint:
    """Make the endpoint ``GET /doctor/bundle``, which every replica answers.

    Parameters
    ----------
    config
        Content of the configuration file.
    registry
        The metrics.
    leader
        Return the sweep of this replica; None while it does not lead.
    """

    async def answer(_request: Request) -> Response:
        sweeper = leader()
        told = {
            "version": version(),
            "python": platform.python_version(),
            "settings": msgspec.to_builtins(config),
            "metrics": generate_latest(registry).decode(),
            "graph": await _graph(sweeper) if sweeper is not None else None,
        }
        return JSONResponse(told)

    return Endpoint(Permission("get", "/doctor/bundle", OPERATOR_AUDIENCE), answer)


async def _graph(sweeper: Sweeper) -> Any:
    try:
        return msgspec.to_builtins(await sweeper.doctor.graph_size())
    except FluxionError as error:
        return {"error": str(error)}
