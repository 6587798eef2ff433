"""Work that comes while a cycle matches is not judged by a graph that does not have what it asks for yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.queue_bench import a_machine, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion


@pytest.mark.parametrize("cpu", ["1", "8"], ids=["it fits now", "it waits for nodes"])
async def test_the_ports_of_work_that_comes_during_a_match_are_in_the_graph_before_it_is_judged(
    monkeypatch: pytest.MonkeyPatch, cpu: str
) -> None:
    async with a_machine() as bench:
        match = LocalFluxion.match_batch
        late = [job("late", 4, cpu, host_ports=[8080])]

        async def while_matching(self: LocalFluxion, requests: Sequence[Any], **call: Any) -> Any:
            if late:
                await bench.submit(late.pop())
            return await match(self, requests, **call)

        monkeypatch.setattr(LocalFluxion, "match_batch", while_matching)
        await bench.submit(job("first", 1, "4"))
        await bench.cycle()
        assert not late
        assert bench.row("late").reason is Reason.NONE, "it was judged before its port was in the graph"
        await bench.cycle()
        waits = bench.row("late").state is State.PENDING
        assert waits is (cpu == "8")
        assert bench.row("late").reason is (Reason.WAITING_FOR_NODES if waits else Reason.NONE)
