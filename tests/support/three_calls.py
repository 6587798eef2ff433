"""A client of a Fluxion service with three calls, in this process,
whose calls fail and answer as a test says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from fluxqueue.fluxion.errors import FluxionError, InitError
from fluxqueue.fluxion.messages import MatchedAllocation
from fluxqueue.fluxion.rpc.compatible import InitRpc
from fluxqueue.fluxion.rpc.failures import Unsupported
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.fluxion.rpc.requests import Answer, Rpc

__all__ = ["ThreeCalls"]

_NAMED = '", "load_format": "jgf'


class ThreeCalls(LocalFluxion):
    """Init, Match and Cancel; anything else is unsupported.

    Attributes
    ----------
    calls
        The calls, in order.
    answer
        Changes the answers of Match.
    """

    def __init__(self, *, names_format: bool = False) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.answer: Callable[[MatchedAllocation], MatchedAllocation] = lambda answer: answer
        self._names_format = names_format
        self._failures: dict[str, list[FluxionError]] = {}

    def fail(self, method: str, *errors: FluxionError) -> None:
        """Have the next calls of a method fail, one for each error."""
        self._failures.setdefault(method, []).extend(errors)

    @property
    def held(self) -> int:
        """Number of jobs in the graph."""
        return len(self.engine.state.jobs)

    async def _send(self, rpc: Rpc[Answer]) -> Answer:
        if not rpc.compatible:
            raise Unsupported(f"{rpc.method} is none of the three calls")
        self.calls.append(rpc.method)
        if failures := self._failures.get(rpc.method):
            raise failures.pop(0)
        if isinstance(rpc, InitRpc):
            if self._names_format and _NAMED not in rpc.policy:
                raise InitError("issue initializing resource api client -1")
            plain: Rpc[Any] = replace(rpc, policy=rpc.policy.replace(_NAMED, ""))
            return cast("Answer", await super()._send(plain))
        answer = await super()._send(rpc)
        return self.answer(answer) if isinstance(answer, MatchedAllocation) else answer  # type: ignore[return-value]  # of this class
