"""What a matcher in the process of a test is asked, noted where every call of it passes."""

from __future__ import annotations

import pytest

from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc, SatisfyRpc
from fluxqueue.fluxion.rpc.requests import Answer, Rpc

__all__ = ["MatcherQuestions"]


class MatcherQuestions:
    """Notes the questions from now on.

    Attributes
    ----------
    matched
        How many requests were to be matched with an explanation of a refusal. Trials do not count.
    satisfied
        The jobspecs of which it was asked whether they could ever be matched.
    """

    def __init__(self, fluxion: LocalFluxion, monkeypatch: pytest.MonkeyPatch) -> None:
        self.matched = 0
        self.satisfied: list[str] = []
        send = fluxion._send

        async def noted(rpc: Rpc[Answer]) -> Answer:
            if isinstance(rpc, MatchBatchRpc) and not rpc.trial:
                self.matched += sum(1 for job in rpc.jobs if job.explain)
            elif isinstance(rpc, SatisfyRpc):
                self.satisfied.append(rpc.jobspec)
            return await send(rpc)

        monkeypatch.setattr(fluxion, "_send", noted)

    def clear(self) -> None:
        """Forget what was asked."""
        self.matched = 0
        self.satisfied.clear()
