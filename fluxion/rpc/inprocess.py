"""The matcher in the caller's own process, behind the interface that the gRPC client has.

It is for the simulator and for benchmarks, where thousands of matches a second must not pay for a socket, and
for tests of callers. Each call is carried out at once in the caller's event loop, one after the other,
because no call waits for anything. So one event loop owns the engine. Failures are of the same classes as
over gRPC.
"""

from __future__ import annotations

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.fluxion.rpc.requests import Answer, Rpc

__all__ = ["LocalFluxion"]


class LocalFluxion(Fluxion):
    """The matcher on an engine of its own, in this process."""

    def __init__(self) -> None:
        self.engine = Engine()

    async def close(self) -> None:
        """Do nothing; the engine stays usable."""

    async def _send(self, rpc: Rpc[Answer]) -> Answer:
        return rpc.run(self.engine)
