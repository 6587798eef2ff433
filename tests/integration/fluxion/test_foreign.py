"""The matcher with a foreign service over gRPC: a stand-in with the accidents of the original, and any that
is named.

``FLUXQUEUE_FOREIGN_FLUXION=host:port`` names a service of your own, for example the Go container. Its graph
is replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.fluxion_builders import check_books, jobspec, node, nodes, slot
from support.foreign_standin import Fault, ForeignStandin

from fluxqueue.fluxion.changes import CancelJobs, RestoreJobs
from fluxqueue.fluxion.foreign.fluxion import ForeignFluxion
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchResult,
    MatchVerdict,
    NodeShare,
    RestoredJob,
)
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient, Deadlines
from fluxqueue.fluxion.rpc.failures import DeadlinePassed, FluxionUnavailable

NOW = CallContext(now=1_700_000_000)
NAMED = os.environ.get("FLUXQUEUE_FOREIGN_FLUXION", "")
VERSIONS = ["0.41", "0.46", "0.54"]
GRANTED, BUSY = MatchVerdict.GRANTED, MatchVerdict.BUSY
NODES = tuple(
    node(name, cpu=4_000, memory=2_048) for name in ("kind-worker", "kind-worker2", "gke-pool-1-abc")
)


def connect(target: str, call_s: float = 60.0) -> ForeignFluxion:
    return ForeignFluxion(
        AsyncFluxionClient(target, deadlines=Deadlines(60, call_s)), "lonode", ForeignUnits(memory_mib=256)
    )


@pytest.fixture(params=[*VERSIONS, "named"])
async def any_service(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Address of each stand-in, and of the service that the environment names."""
    if request.param == "named":
        if not NAMED:
            pytest.skip("FLUXQUEUE_FOREIGN_FLUXION names no service")
        yield NAMED
        return
    standin = ForeignStandin(request.param)
    await standin.start()
    yield standin.target
    await standin.stop()


@pytest.fixture
async def standin() -> AsyncIterator[ForeignStandin]:
    made = ForeignStandin("0.41")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def fluxion(standin: ForeignStandin) -> AsyncIterator[ForeignFluxion]:
    async with connect(standin.target) as made:
        await made.init("lonode", nodes=NODES, call=NOW)
        yield made


async def match(fluxion: ForeignFluxion, text: str, jobid: int = 1, **more: Any) -> MatchResult:
    batch = await fluxion.match_batch([JobMatchRequest(text, jobid, explain=True, **more)], call=NOW)
    check_books(fluxion.engine)
    return batch.results[0]


def placed(result: MatchResult) -> dict[str, int]:
    return {share.node: sum(share.slots.values()) for share in result.shares}


async def test_work_is_placed_ends_and_is_followed(any_service: str) -> None:
    async with connect(any_service) as fluxion:
        await fluxion.init("lonode", nodes=NODES, call=NOW)
        await fluxion.apply(
            [
                RestoreJobs(
                    [
                        RestoredJob(
                            90, (NodeShare("kind-worker", {"pod": 3}, {"cpu": 3_000}),), NOW.now or 0, 0
                        )
                    ]
                )
            ],
            call=NOW,
        )
        one_each = await match(fluxion, jobspec(nodes(3, slot(1, "pod", cpu=1_000, memory=256))), 1)
        assert placed(one_each) == {spec.name: 1 for spec in NODES}
        assert placed(await match(fluxion, jobspec(slot(6, "pod", cpu=900)), 2)) == {
            "kind-worker2": 3,
            "gke-pool-1-abc": 3,
        }
        assert (await match(fluxion, jobspec(slot(1, "pod", cpu=1_000)), 3)).verdict is BUSY
        assert (
            await match(fluxion, jobspec(slot(1, "pod", cpu=9_000)), 4)
        ).verdict is MatchVerdict.UNSATISFIABLE
        await fluxion.apply([CancelJobs([1])], call=NOW)
        only = jobspec(slot(1, "pod", cpu=1_000), constraints={"hostlist": ["kind-worker"]})
        assert placed(await match(fluxion, only, 5)) == {"kind-worker": 1}
        await fluxion.apply([CancelJobs([90, 2])], call=NOW)
        result = await match(fluxion, jobspec(slot(1, "pod.0", cpu=3_000), slot(2, "pod.1", cpu=4_000)), 6)
        assert result.verdict is GRANTED
        assert sum(placed(result).values()) == 3


async def test_a_constraint_that_excludes_most_or_few_nodes_is_understood(any_service: str) -> None:
    specs = [
        node(f"n{number}", cpu=1_000, labels=("even",) if number % 2 == 0 else ("odd",))
        for number in range(12)
    ]
    async with connect(any_service) as fluxion:
        await fluxion.init("lonode", nodes=specs, call=NOW)
        few = await match(
            fluxion, jobspec(slot(2, "pod", cpu=1_000), constraints={"hostlist": ["n10", "n11"]}), 1
        )
        assert set(placed(few)) == {"n10", "n11"}
        most = await match(
            fluxion, jobspec(slot(8, "pod", cpu=1_000), constraints={"not": [{"hostlist": ["n0", "n1"]}]}), 2
        )
        assert set(placed(most)) == {f"n{number}" for number in range(2, 10)}
        odd = await match(fluxion, jobspec(slot(1, "pod", cpu=1_000), constraints={"properties": ["odd"]}), 3)
        assert placed(odd) == {"n1": 1}


async def test_calls_are_never_under_way_together(fluxion: ForeignFluxion, standin: ForeignStandin) -> None:
    await asyncio.gather(*(match(fluxion, jobspec(slot(1, cpu=1_000)), jobid) for jobid in range(1, 9)))
    assert standin.most_at_once == 1


@pytest.mark.parametrize("fault", [Fault.LATER, Fault.RUBBISH, Fault.ELSEWHERE, Fault.NOTHING, Fault.STATUS])
async def test_a_bad_answer_is_not_booked_and_work_goes_on(
    fault: Fault, fluxion: ForeignFluxion, standin: ForeignStandin
) -> None:
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)), 1)).verdict is GRANTED
    standin.fault = fault
    result = await match(fluxion, jobspec(slot(1, cpu=1_000)), 2)
    assert result.verdict is BUSY
    assert "foreign matcher" in result.reason
    standin.fault = Fault.NONE
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)), 2)).verdict is GRANTED
    assert standin.held == 2 or standin.calls.count("Init") > 2


async def test_nodes_that_were_given_before_are_not_given_again(
    fluxion: ForeignFluxion, standin: ForeignStandin
) -> None:
    assert placed(await match(fluxion, jobspec(slot(4, cpu=1_000)), 1)) == {"kind-worker": 4}
    standin.fault = Fault.SAME_AGAIN
    standin.faults = 1
    assert "kind-worker" not in placed(await match(fluxion, jobspec(slot(4, cpu=1_000)), 2))


async def test_an_allocation_that_nobody_knows_is_forgotten_by_an_init(standin: ForeignStandin) -> None:
    async with connect(standin.target, call_s=1.0) as fluxion:
        await fluxion.init("lonode", nodes=NODES, call=NOW)
        standin.fault, standin.faults = Fault.SILENCE, 1
        with pytest.raises(DeadlinePassed):
            await match(fluxion, jobspec(slot(12, cpu=1_000)))
        assert standin.held == 1
        assert (await match(fluxion, jobspec(slot(12, cpu=1_000)))).verdict is GRANTED
        assert standin.held == 1


@pytest.mark.parametrize(
    "how", ["it ends at a call", "it was started again", "it was given another graph", "its ids begin again"]
)
async def test_a_service_that_lost_its_graph_is_given_it_again(
    how: str, fluxion: ForeignFluxion, standin: ForeignStandin
) -> None:
    assert placed(await match(fluxion, jobspec(slot(4, cpu=1_000)), 1)) == {"kind-worker": 4}
    if how == "it ends at a call":
        standin.fault, standin.faults = Fault.END, 1
    elif how == "it was started again":
        await standin.restart()
    elif how == "its ids begin again":
        standin.fault, standin.faults = Fault.OLD_ID, 1
    else:
        async with AsyncFluxionClient(standin.target) as other:
            await other.init("lonode", jgf=_same_graph(standin))
    await _granted(fluxion, 2)
    assert {job.jobid for job in await fluxion.list_jobs(call=NOW)} == {1, 2}
    assert "kind-worker" not in _nodes_of(await fluxion.list_jobs(call=NOW, with_shares=True), 2)


def _same_graph(standin: ForeignStandin) -> str:
    return json.dumps(standin.graphs[0])


def _nodes_of(jobs: Any, jobid: int) -> set[str]:
    return {share.node for job in jobs if job.jobid == jobid for share in job.shares}


async def _granted(fluxion: ForeignFluxion, jobid: int) -> None:
    """Match as a cycle does that is tried again after each failure of the matcher."""
    async with asyncio.timeout(60):
        while True:
            try:
                result = await match(fluxion, jobspec(slot(4, cpu=1_000)), jobid)
            except FluxionUnavailable:
                continue
            assert result.verdict is GRANTED
            return


async def test_a_connection_that_ends_is_noticed_without_a_match(
    fluxion: ForeignFluxion, standin: ForeignStandin
) -> None:
    await match(fluxion, jobspec(slot(1, cpu=1_000)), 1)
    waiting = asyncio.create_task(fluxion.wait_for_loss(120))
    await standin.restart()
    await asyncio.wait_for(waiting, 60)
    inits = standin.calls.count("Init")
    await _until(lambda: fluxion.info(1, call=NOW))
    assert standin.calls.count("Init") == inits + 1
    assert standin.ends == 0, "no Match was sent to a service without a graph"


async def _until(call: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
            except FluxionUnavailable:
                continue
            return


async def test_a_graph_larger_than_a_message_is_cut(standin: ForeignStandin) -> None:
    specs: list[GraphNodeSpec] = [
        node(f"node-{number:04}", cpu=64_000, memory=65_536) for number in range(120)
    ]
    async with connect(standin.target) as fluxion:
        await fluxion.init("lonode", nodes=specs, call=NOW)
        assert 0 < fluxion.service.left_out < 120
        last = jobspec(slot(1, cpu=64_000), constraints={"hostlist": ["node-0119"]})
        assert placed(await match(fluxion, last)) == {"node-0119": 1}
