"""How often the instance is asked whether it is ready, and what is answered."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fluxqueue.rest.commands import Flux, FluxFailed
from fluxqueue.rest.readiness import FluxReadiness


class Instance:
    """A Flux instance that counts how often its jobs were listed."""

    def __init__(self) -> None:
        self.listed = 0
        self.error: Exception | None = None

    async def jobs(self, **_: Any) -> list[dict[str, Any]]:
        self.listed += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return []


async def test_one_answer_serves_all_who_ask_meanwhile() -> None:
    instance = Instance()
    readiness = FluxReadiness(cast("Flux", instance), valid_s=3600)
    assert await asyncio.gather(*(readiness.problem() for _ in range(20))) == [""] * 20
    assert instance.listed == 1


async def test_an_answer_does_not_count_for_ever() -> None:
    instance = Instance()
    readiness = FluxReadiness(cast("Flux", instance), valid_s=0)
    assert await readiness.problem() == ""
    instance.error = FluxFailed("Connection refused")
    assert await readiness.problem() == "the instance does not respond yet: Connection refused"
    assert instance.listed == 2
