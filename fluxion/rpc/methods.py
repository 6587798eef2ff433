"""All RPCs of the service by name."""

from __future__ import annotations

from typing import Any, Final

from fluxqueue.fluxion.rpc import apply, compatible, matching, reports
from fluxqueue.fluxion.rpc.requests import Rpc

__all__ = ["METHODS"]

METHODS: Final[dict[str, type[Rpc[Any]]]] = {
    rpc.method: rpc for rpc in (*compatible.RPCS, *matching.RPCS, *reports.RPCS, *apply.RPCS)
}
