"""The matcher of the queue with a foreign service behind it:
what is granted, what is not, and that nothing is booked twice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from support.fluxion_builders import check_books, jobspec, node, nodes, slot
from support.three_calls import ThreeCalls

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
)
from fluxqueue.fluxion.errors import InitError
from fluxqueue.fluxion.foreign.fluxion import ForeignFluxion
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchedAllocation,
    MatchResult,
    MatchVerdict,
    NodeShare,
    RestoredJob,
)
from fluxqueue.fluxion.rpc.failures import FluxionUnavailable

NOW = CallContext(now=1_000)
GRANTED, BUSY, NEVER = MatchVerdict.GRANTED, MatchVerdict.BUSY, MatchVerdict.UNSATISFIABLE


async def foreign(
    *specs: GraphNodeSpec, client: ThreeCalls | None = None
) -> tuple[ForeignFluxion, ThreeCalls]:
    client = client or ThreeCalls()
    fluxion = ForeignFluxion(client, "lonode", ForeignUnits(memory_mib=256))
    await fluxion.init("lonode", nodes=specs, call=NOW)
    return fluxion, client


async def match(fluxion: ForeignFluxion, text: str, jobid: int = 1, **more: Any) -> MatchResult:
    batch = await fluxion.match_batch([JobMatchRequest(text, jobid, explain=True, **more)], call=NOW)
    check_books(fluxion.engine)
    return batch.results[0]


def placed(result: MatchResult) -> dict[str, int]:
    return {share.node: sum(share.slots.values()) for share in result.shares}


async def test_the_service_chooses_the_nodes() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000), node("b", cpu=2_000))
    client.answer = lambda answer: MatchedAllocation(answer.jobid, answer.allocation.replace("/a", "/b"))
    assert placed(await match(fluxion, jobspec(slot(2, cpu=1_000)))) == {"b": 2}
    assert client.calls[-1] == "Match"


async def test_its_choice_is_booked_with_what_was_asked_for() -> None:
    fluxion, _ = await foreign(node("a", cpu=2_000))
    (share,) = (await match(fluxion, jobspec(slot(2, "pod", cpu=250)))).shares
    assert share == NodeShare("a", {"pod": 2}, {"cpu": 500})
    assert (await fluxion.list_jobs(call=NOW, with_shares=True))[0].shares == (share,)


async def test_busy_and_impossible_are_told_apart_without_the_service() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    await match(fluxion, jobspec(slot(2, cpu=1_000)))
    before = list(client.calls)
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)), 2)).verdict is BUSY
    assert (await match(fluxion, jobspec(slot(3, cpu=1_000)), 3)).verdict is NEVER
    assert client.calls == before


@pytest.mark.parametrize(("wait_s", "verdict"), [(0, GRANTED), (600, BUSY)])
async def test_what_the_service_has_no_pieces_for_in_one_flavor_may_start_in_the_next(
    wait_s: int, verdict: MatchVerdict
) -> None:
    fluxion, _ = await foreign(node("a", cpu=1_500, labels=("own",)), node("b", cpu=4_000, labels=("spot",)))
    spec = json.loads(jobspec(slot(1, cpu=1_500)))
    spec["attributes"]["system"]["flavors"] = [
        {"name": name, "wait": wait, "labels": [name]} for name, wait in (("own", 0), ("spot", wait_s))
    ]
    result = await match(fluxion, json.dumps(spec), waits_since=NOW.now or 0)
    assert (result.verdict, placed(result)) == (verdict, {"b": 1} if verdict is GRANTED else {})


async def test_no_reservation_is_made() -> None:
    fluxion, _ = await foreign(node("a", cpu=2_000))
    await match(fluxion, jobspec(slot(2, cpu=1_000)))
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)), 2, reserve=True)).verdict is BUSY
    assert [job.jobid for job in await fluxion.list_jobs(call=NOW)] == [1]


async def test_a_granted_id_repeats_its_answer_without_the_service() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    first, before = await match(fluxion, jobspec(slot(1, cpu=1_000))), list(client.calls)
    assert await match(fluxion, jobspec(slot(1, cpu=1_000))) == first
    assert client.calls == before


async def test_a_batch_stops_at_the_first_failure() -> None:
    fluxion, _ = await foreign(node("a", cpu=2_000))
    requests = [JobMatchRequest(jobspec(slot(2, cpu=1_000)), jobid) for jobid in (1, 2, 3)]
    batch = await fluxion.match_batch(requests, call=NOW, stop_at_first_failure=True)
    assert [result.verdict for result in batch.results] == [GRANTED, BUSY]


async def test_a_trial_asks_our_graph_only() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    await match(fluxion, jobspec(slot(2, cpu=1_000)))
    before = list(client.calls)
    batch = await fluxion.trial([JobMatchRequest(jobspec(slot(1, cpu=1_000)), 2)], call=NOW, without=[1])
    assert batch.results[0].verdict is GRANTED
    assert client.calls == before


async def test_restored_work_is_left_out_of_its_graph() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000), node("b", cpu=2_000))
    await fluxion.apply(
        [RestoreJobs([RestoredJob(7, (NodeShare("a", {"pod": 2}, {"cpu": 2_000}),), 900, 0)])], call=NOW
    )
    assert placed(await match(fluxion, jobspec(slot(2, cpu=1_000)))) == {"b": 2}
    assert client.held == 1


async def test_what_ends_is_free_for_the_next() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    for jobid in range(1, 6):
        assert (await match(fluxion, jobspec(slot(2, cpu=1_000)), jobid)).verdict is GRANTED
        await fluxion.apply([CancelJobs([jobid])], call=NOW)
    assert client.calls.count("Cancel") == 4
    assert client.calls.count("Init") == 2


@pytest.mark.parametrize(
    "change", ["restored work ends", "a node is added", "slots end one by one", "a foreign pod ends"]
)
async def test_what_becomes_free_otherwise_is_found_by_a_new_init(change: str) -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    if change == "restored work ends":
        await fluxion.apply(
            [RestoreJobs([RestoredJob(7, (NodeShare("a", {"pod": 1}, {"cpu": 1_500}),), 900, 0)])], call=NOW
        )
    elif change == "a foreign pod ends":
        await fluxion.apply([ResizeSystem([NodeShare("a", amounts={"cpu": 1_500})])], call=NOW)
    elif change == "slots end one by one":
        await match(fluxion, jobspec(slot(2, "pod", cpu=1_000)), 7)
    else:
        await match(fluxion, jobspec(slot(2, cpu=1_000)), 7)
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)))).verdict is BUSY
    inits = client.calls.count("Init")
    match change:
        case "restored work ends":
            await fluxion.apply([CancelJobs([7])], call=NOW)
        case "a foreign pod ends":
            await fluxion.apply([ResizeSystem([NodeShare("a")])], call=NOW)
        case "slots end one by one":
            await fluxion.apply([CancelPart(7, [NodeShare("a", {"pod": 1})])], call=NOW)
        case _:
            await fluxion.apply([AddNodes([node("b", cpu=2_000)])], call=NOW)
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)))).verdict is GRANTED
    assert client.calls.count("Init") == inits + 1


async def test_a_choice_that_foreign_pods_have_taken_is_made_again() -> None:
    fluxion, client = await foreign(node("a", cpu=4_000), node("b", cpu=2_000))
    await match(fluxion, jobspec(slot(1, cpu=500)), 1)
    # the service still has three free cores on a
    await fluxion.apply([ResizeSystem([NodeShare("a", amounts={"cpu": 1_900})])], call=NOW)
    assert placed(await match(fluxion, jobspec(slot(2, cpu=900)), 2)) == {"a": 1, "b": 1}
    assert client.held == 1, "its graph was given anew"


async def test_a_node_that_is_down_is_not_asked_for() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000), node("b", cpu=2_000))
    await match(fluxion, jobspec(slot(1, cpu=1_000)), 1)
    await fluxion.apply([SetNodeStatus({"a": False})], call=NOW)
    inits = client.calls.count("Init")
    assert placed(await match(fluxion, jobspec(slot(1, cpu=1_000)), 2)) == {"b": 1}
    assert client.calls.count("Init") == inits


async def test_rules_about_nodes_are_respected() -> None:
    fluxion, _ = await foreign(
        node("a", cpu=4_000), node("b", cpu=4_000, labels=("fast",)), node("c", cpu=4_000, labels=("fast",))
    )
    fast = jobspec(slot(1, cpu=1_000), constraints={"properties": ["fast"]})
    assert placed(await match(fluxion, fast, 1)) == {"b": 1}
    assert placed(await match(fluxion, fast, 2, exclude=("b",))) == {"c": 1}
    assert placed(await match(fluxion, jobspec(nodes(3, slot(1, cpu=1_000))), 3)) == {"a": 1, "b": 1, "c": 1}


async def test_pods_of_several_sizes_are_one_job() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000), node("b", cpu=3_000))
    result = await match(fluxion, jobspec(slot(1, "pod.0", cpu=1_000), slot(2, "pod.1", cpu=2_000)))
    assert sum(share.amounts["cpu"] for share in result.shares) == 5_000
    assert client.held == 2
    await fluxion.apply([CancelJobs([1])], call=NOW)
    assert (await match(fluxion, jobspec(slot(1, cpu=3_000)), 2)).verdict is GRANTED
    assert client.held == 1


async def test_levels_are_placed_by_our_matcher_node_by_node() -> None:
    fluxion, client = await foreign(
        *(node(f"{zone}{number}", zone, cpu=2_000) for zone in "xy" for number in (1, 2))
    )
    together = {"type": "zone", "count": 1, "label": "group", "with": [slot(4, cpu=1_000)]}
    result = await match(fluxion, jobspec(together))
    assert {name[0] for name in placed(result)} in ({"x"}, {"y"})
    assert client.held == 2


async def test_small_pods_that_fill_a_node_are_granted_although_cores_are_rounded_up() -> None:
    fluxion, _ = await foreign(node("a", cpu=2_000))
    assert placed(await match(fluxion, jobspec(slot(8, cpu=200)))) == {"a": 8}


async def test_what_never_fits_in_whole_cores_is_said_and_blocks_nobody() -> None:
    fluxion, _ = await foreign(node("a", cpu=3_900))
    result = await match(fluxion, jobspec(slot(1, cpu=3_500)))
    assert result.verdict is NEVER
    assert "whole pieces" in result.reason


async def test_a_service_that_finds_nothing_makes_work_wait_with_that_reason() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    client.answer = lambda answer: MatchedAllocation(answer.jobid, "{}")
    result = await match(fluxion, jobspec(slot(1, cpu=1_000)))
    assert result.verdict is BUSY
    assert "the answer of the foreign matcher is refused" in result.reason
    assert client.held == 0


async def test_an_answer_for_nodes_that_are_taken_is_never_booked() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000), node("b", cpu=2_000))
    first = await match(fluxion, jobspec(slot(2, cpu=1_000)), 1)
    (taken,) = placed(first)
    other = "b" if taken == "a" else "a"
    client.answer = lambda answer: MatchedAllocation(
        answer.jobid, answer.allocation.replace(f"/{other}", f"/{taken}")
    )
    assert (await match(fluxion, jobspec(slot(2, cpu=1_000)), 2)).verdict is BUSY
    assert [job.jobid for job in await fluxion.list_jobs(call=NOW)] == [1]


async def test_a_match_without_an_answer_books_nothing_and_is_followed_by_an_init() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    client.fail("Match", FluxionUnavailable("gone"))
    with pytest.raises(FluxionUnavailable):
        await match(fluxion, jobspec(slot(1, cpu=1_000)))
    assert await fluxion.list_jobs(call=NOW) == ()
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)))).verdict is GRANTED
    assert client.calls[-2:] == ["Init", "Match"]


async def test_a_request_that_ends_the_service_each_time_is_left_out() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    deadly = jobspec(slot(1, "deadly", cpu=1_000))
    for _ in range(2):
        client.fail("Match", FluxionUnavailable("gone"))
        with pytest.raises(FluxionUnavailable):
            await match(fluxion, deadly)
    result = await match(fluxion, deadly)
    assert result.verdict is NEVER
    assert "gave no answer" in result.reason
    assert (await match(fluxion, jobspec(slot(1, cpu=1_000)), 2)).verdict is GRANTED


async def test_a_service_that_is_away_is_noticed_when_the_graph_is_filled() -> None:
    client = ThreeCalls()
    client.fail("Init", FluxionUnavailable("gone"))
    with pytest.raises(FluxionUnavailable):
        await foreign(node("a", cpu=2_000), client=client)


async def test_a_service_that_takes_no_jgf_is_an_init_error() -> None:
    client = ThreeCalls()
    client.fail("Init", *[InitError("issue initializing resource api client -1")] * 2)
    with pytest.raises(InitError):
        await foreign(node("a", cpu=2_000), client=client)


async def test_a_lost_connection_is_followed_by_an_init_and_loses_nothing_of_ours() -> None:
    fluxion, client = await foreign(node("a", cpu=2_000))
    await match(fluxion, jobspec(slot(1, cpu=1_000)))
    await client.init(
        "lonode",
        jgf=(
            '{"graph": {"nodes": [{"id": "0", "metadata": {"type": "cluster", "paths": '
            '{"containment": "/c"}}}], "edges": []}}'
        ),
    )
    client.wait_for_loss = _at_once  # type: ignore[method-assign]  # of this test
    await fluxion.wait_for_loss(30)
    assert (await fluxion.info(1, call=NOW)).jobid == 1
    assert client.calls[-1] == "Init"
    assert (await match(fluxion, jobspec(slot(2, cpu=1_000)), 2)).verdict is BUSY


async def _at_once(within_s: float) -> None:
    return None


async def test_nodes_that_do_not_fit_into_a_message_are_reached_by_our_placement() -> None:
    specs = [node(f"n{number}", cpu=8_000) for number in range(10)]
    client = ThreeCalls()
    fluxion = ForeignFluxion(client, "lonode", most_bytes=3_000)
    await fluxion.init("lonode", nodes=specs, call=NOW)
    for jobid in range(1, 11):
        assert (await match(fluxion, jobspec(slot(1, cpu=8_000)), jobid)).verdict is GRANTED
    assert fluxion.service.left_out or fluxion.service.inits > 2


def _mischief(answer: MatchedAllocation, dice: random.Random, before: list[str]) -> MatchedAllocation:
    before.append(answer.allocation)
    match dice.randrange(8):
        case 0:
            return MatchedAllocation(answer.jobid, dice.choice(before))
        case 1:
            return MatchedAllocation(1, answer.allocation)
        case 2:
            return MatchedAllocation(answer.jobid, answer.allocation.replace("/n1", "/n2"))
        case 3:
            return MatchedAllocation(answer.jobid, answer.allocation, reserved=True, at=5)
    return answer


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_the_service_answers_nothing_is_booked_twice(seed: int) -> None:
    """Random work, ends, nodes and mischief: the books are checked after each match,
    and the graph never holds more than was asked for.
    """
    dice, before = random.Random(seed), list[str]()
    specs = [node(f"n{number}", cpu=dice.choice((1_500, 4_000, 8_000)), memory=4_096) for number in range(4)]
    fluxion, client = await foreign(*specs)
    client.answer = lambda answer: _mischief(answer, dice, before)
    live: list[int] = []
    for jobid in range(1, 40):
        match dice.randrange(6):
            case 0 if live:
                await fluxion.apply([CancelJobs([live.pop(dice.randrange(len(live)))])], call=NOW)
            case 1:
                await fluxion.apply(
                    [
                        ResizeSystem(
                            [NodeShare(dice.choice(specs).name, amounts={"cpu": dice.randrange(3_000)})]
                        )
                    ],
                    call=NOW,
                )
            case 2:
                await fluxion.apply([SetNodeStatus({dice.choice(specs).name: dice.random() < 0.7})], call=NOW)
            case 3:
                client.fail("Match", FluxionUnavailable("gone"))
        count, cpu = dice.randrange(1, 4), dice.choice((100, 500, 1_000, 1_700))
        try:
            result = await match(fluxion, jobspec(slot(count, "pod", cpu=cpu, memory=256)), jobid)
        except FluxionUnavailable:
            continue
        if result.verdict is GRANTED:
            live.append(jobid)
            assert _total(result.shares, "cpu") == count * cpu
            assert sum(placed(result).values()) == count
    assert {job.jobid for job in await fluxion.list_jobs(call=NOW) if job.jobid > 0} == set(live)


def _total(shares: Sequence[NodeShare], kind: str) -> int:
    return sum(share.amounts[kind] for share in shares)
