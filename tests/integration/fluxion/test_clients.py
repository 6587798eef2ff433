"""The clients against a real service: answers come as values,
refusals as the classes that the engine raised.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from support.fluxionrequests import cluster_jgf, make_jobspec, make_node

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.errors import (
    ClockMixed,
    InitError,
    NotInitialised,
    StaleEpoch,
    UnknownJob,
    WrongInstance,
)
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    JobMode,
    MatchVerdict,
    NodeShare,
    Pool,
    RestoredJob,
)
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient, FluxionClient
from fluxqueue.fluxion.rpc.failures import InvalidCall, MatchFailed
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.fluxion.rpc.server import RunningServer
from fluxqueue.proto.v1 import fluxion_pb2 as pb

NOW = 1_700_000_000
CALL = CallContext(now=NOW, epoch=1)
CORE = make_jobspec(cpu=1_000, memory=1_024, pods=1, duration=60)


@pytest.fixture(params=["over gRPC", "in process"])
async def matcher(request: pytest.FixtureRequest, server: RunningServer) -> AsyncIterator[Fluxion]:
    """Both implementations of the interface pass the same tests."""
    made: AsyncFluxionClient | LocalFluxion = (
        LocalFluxion() if request.param == "in process" else AsyncFluxionClient(f"127.0.0.1:{server.port}")
    )
    async with made:
        yield made


@pytest.fixture
async def loaded(matcher: Fluxion) -> Fluxion:
    await matcher.init("lonode", nodes=[make_node("a"), make_node("b")], call=CALL)
    return matcher


async def test_a_batch_is_matched_in_order_under_ids_of_the_caller(loaded: Fluxion) -> None:
    batch = await loaded.match_batch([JobMatchRequest(CORE, 7), JobMatchRequest(CORE, 5)], call=CALL)
    assert [(result.verdict, result.jobid) for result in batch.results] == [
        (MatchVerdict.GRANTED, 7),
        (MatchVerdict.GRANTED, 5),
    ]
    first = batch.results[0]
    assert (first.at, first.end) == (NOW, NOW + 60)
    assert first.shares == (NodeShare("a", {"task": 1}, {"cpu": 1_000, "memory": 1_024, "pods": 1}),)
    assert first.allocation == ""
    assert batch.instance
    assert batch.overhead_s > 0


async def test_a_granted_id_repeats_its_answer(loaded: Fluxion) -> None:
    once = await loaded.match_batch([JobMatchRequest(CORE, 7)], call=CALL)
    again = await loaded.match_batch([JobMatchRequest(CORE, 7)], call=CALL)
    assert again.results == once.results
    assert (await loaded.stat(call=CALL)).allocated_jobs == 1


async def test_a_batch_may_stop_at_the_first_failure(loaded: Fluxion) -> None:
    jobs = [
        JobMatchRequest(CORE, 1),
        JobMatchRequest(make_jobspec(cpu=9_000), 2, explain=True),
        JobMatchRequest(CORE, 3),
    ]
    batch = await loaded.match_batch(jobs, call=CALL, stop_at_first_failure=True)
    assert [result.verdict for result in batch.results] == [MatchVerdict.GRANTED, MatchVerdict.UNSATISFIABLE]
    assert batch.results[1].reason
    assert batch.results[1].shortages


async def test_an_allocation_comes_as_jgf_if_asked(loaded: Fluxion) -> None:
    batch = await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL, with_allocation=True)
    assert '"graph"' in batch.results[0].allocation


async def test_a_reservation_is_made_on_nodes_that_are_named(loaded: Fluxion) -> None:
    result = await loaded.reserve_at(4, CORE, NOW + 600, call=CALL, nodes=["b"])
    assert (result.verdict, result.at, [share.node for share in result.shares]) == (
        MatchVerdict.RESERVED,
        NOW + 600,
        ["b"],
    )


async def test_satisfy_separates_satisfiable_from_unsatisfiable_and_books_nothing(loaded: Fluxion) -> None:
    assert (await loaded.satisfy(CORE, call=CALL)).verdict is MatchVerdict.GRANTED
    assert (await loaded.satisfy(make_jobspec(cpu=9_000), call=CALL)).verdict is MatchVerdict.UNSATISFIABLE
    assert (await loaded.satisfy("{", call=CALL)).verdict is MatchVerdict.INVALID
    assert await loaded.list_jobs(call=CALL) == ()


async def test_jobs_are_listed_and_described(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(CORE, 9), JobMatchRequest(CORE, 3)], call=CALL)
    listed = await loaded.list_jobs(call=CALL, with_shares=True)
    assert [(job.jobid, job.mode) for job in listed] == [(3, JobMode.ALLOCATED), (9, JobMode.ALLOCATED)]
    assert await loaded.info(3, call=CALL) == listed[0]


async def test_cancelling_an_unknown_job_among_others_is_no_error(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
    assert (await loaded.apply([CancelJobs([1, 2])], call=CALL)).done
    assert (await loaded.info(1, call=CALL)).mode is JobMode.CANCELED


async def test_part_of_a_job_is_given_back(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(make_jobspec(2, cpu=1_000, pods=1), 1)], call=CALL)
    applied = await loaded.apply([CancelPart(1, [NodeShare("a", {"task": 1})])], call=CALL)
    assert applied.done
    assert [share.amounts for share in (await loaded.info(1, call=CALL)).shares] == [
        {"cpu": 1_000, "pods": 1}
    ]


async def test_a_trial_answers_as_if_part_of_a_job_was_given_back(loaded: Fluxion) -> None:
    job = RestoredJob(
        12, (NodeShare("a", {}, {"cpu": 4_000}), NodeShare("b", {}, {"cpu": 4_000})), NOW, NOW + 900
    )
    assert (await loaded.apply([RestoreJobs([job])], call=CALL)).done
    asked = [JobMatchRequest(CORE, 1)]
    assert [each.verdict for each in (await loaded.trial(asked, call=CALL)).results] == [MatchVerdict.BUSY]
    (answer,) = (await loaded.trial(asked, call=CALL, parts=[CancelPart(12, (NodeShare("b"),))])).results
    assert [share.node for share in answer.shares] == ["b"]
    assert len((await loaded.info(12, call=CALL)).shares) == 2


async def test_an_allocation_known_from_elsewhere_is_restored(loaded: Fluxion) -> None:
    job = RestoredJob(12, (NodeShare("b", {}, {"cpu": 2_000}),), NOW - 10, NOW + 90)
    for _ in range(2):
        assert (await loaded.apply([RestoreJobs([job])], call=CALL)).done
    info = await loaded.info(12, call=CALL)
    assert (info.at, info.end, info.shares[0].amounts) == (NOW - 10, NOW + 90, {"cpu": 2_000})


async def test_the_end_of_a_job_is_moved(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
    assert (await loaded.apply([ExtendJob(1, NOW + 120)], call=CALL)).done
    assert (await loaded.info(1, call=CALL)).end == NOW + 120


async def test_a_system_allocation_is_set_and_its_excess_returned(loaded: Fluxion) -> None:
    applied = await loaded.apply([ResizeSystem([NodeShare("a", amounts={"cpu": 5_000})])], call=CALL)
    assert applied.done
    assert [(share.node, share.amounts) for share in applied.excess] == [("a", {"cpu": 1_000})]


async def test_changes_are_made_together_or_not_at_all(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
    impossible = ResizeSystem((NodeShare("nowhere", amounts={"cpu": 100}),))
    refused = await loaded.apply([CancelJobs((1,)), impossible], call=CALL)
    assert (refused.done, refused.failed_index) == (False, 1)
    assert refused.reason
    assert [job.jobid for job in await loaded.list_jobs(call=CALL)] == [1]
    applied = await loaded.apply([CancelJobs((1,))], call=CALL)
    assert (applied.done, applied.failed_index) == (True, -1)
    assert await loaded.list_jobs(call=CALL) == ()


async def test_nodes_are_added_changed_and_removed(loaded: Fluxion) -> None:
    assert (await loaded.apply([AddNodes([make_node("c", properties={"disk": "ssd"})])], call=CALL)).done
    assert (await loaded.apply([SetNodeStatus({"a": False, "b": False})], call=CALL)).done
    assert (await loaded.apply([SetProperties({"c": {"gpu": "old"}})], call=CALL)).done
    batch = await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
    assert [share.node for share in batch.results[0].shares] == ["c"]
    stat = await loaded.stat(call=CALL, per_node=True)
    assert (stat.nodes, stat.nodes_up) == (3, 1)
    assert (await loaded.apply([RemoveNodes(["a"])], call=CALL)).done
    assert (await loaded.stat(call=CALL)).nodes == 2


async def test_stat_sums_the_graph_up(loaded: Fluxion) -> None:
    await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
    stat = await loaded.stat(call=CALL, per_node=True)
    assert stat.total["cpu"] == 8_000
    assert stat.free["cpu"] == 7_000
    assert (stat.policy, stat.allocated_jobs, stat.reserved_jobs, stat.now, stat.epoch) == (
        "lonode",
        1,
        0,
        NOW,
        1,
    )
    assert [(use.node, dict(use.used).get("cpu", 0), use.jobids) for use in stat.node_use] == [
        ("a", 1_000, (1,)),
        ("b", 0, ()),
    ]


async def test_every_init_is_another_instance_without_jobs(loaded: Fluxion) -> None:
    first = (await loaded.match_batch([JobMatchRequest(CORE, 1)], call=CALL)).instance
    second = await loaded.init("lonode", nodes=[make_node("a")], call=CALL)
    assert second != first
    assert await loaded.list_jobs(call=CALL) == ()


async def test_match_and_cancel_of_the_go_service_are_typed_too(matcher: Fluxion) -> None:
    await matcher.init("lonode", jgf=cluster_jgf())
    found = await matcher.match(make_jobspec(core=4, duration=9))
    assert (found.jobid, found.reserved, found.at) == (1, False, 0)
    await matcher.match(make_jobspec(core=4, duration=9))
    later = await matcher.match(make_jobspec(core=4, duration=9), reserve=True)
    assert (later.reserved, later.at) == (True, 9)
    with pytest.raises(MatchFailed) as failed:
        await matcher.match(make_jobspec(core=4))
    assert failed.value.reason
    await matcher.cancel(1)
    await matcher.cancel(1)


# ---- refusals ----------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, type[Exception], Callable[[Fluxion], Any]]] = [
    ("an older epoch", StaleEpoch, lambda fluxion: fluxion.stat(call=CallContext(now=NOW, epoch=3))),
    (
        "an older epoch at Init",
        StaleEpoch,
        lambda fluxion: fluxion.init("lonode", nodes=[], call=CallContext(now=NOW, epoch=3)),
    ),
    (
        "another instance",
        WrongInstance,
        lambda fluxion: fluxion.stat(call=CallContext(now=NOW, epoch=4, instance="of-before")),
    ),
    (
        "a match without a time",
        ClockMixed,
        lambda fluxion: fluxion.match_batch([JobMatchRequest(CORE, 1)], call=CallContext(epoch=4)),
    ),
    ("the original match on the wall clock", ClockMixed, lambda fluxion: fluxion.match(CORE)),
    ("an unknown job", UnknownJob, lambda fluxion: fluxion.info(404, call=CallContext(now=NOW, epoch=4))),
    (
        "an unknown policy",
        InitError,
        lambda fluxion: fluxion.init("foo", nodes=[], call=CallContext(now=NOW, epoch=4)),
    ),
    (
        "a node without a name",
        InitError,
        lambda fluxion: fluxion.init("", nodes=[GraphNodeSpec("", ())], call=CallContext(now=NOW, epoch=4)),
    ),
    (
        "a broken graph",
        InitError,
        lambda fluxion: fluxion.init("", jgf="{", call=CallContext(now=NOW, epoch=4)),
    ),
    ("no graph at all", InvalidCall, lambda fluxion: fluxion.init("")),
]


@pytest.mark.parametrize(("kind", "ask"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
async def test_a_refusal_is_of_one_class_everywhere(
    matcher: Fluxion, kind: type[Exception], ask: Callable[[Fluxion], Any]
) -> None:
    await matcher.init("lonode", nodes=[make_node("a")], call=CallContext(now=NOW, epoch=4))
    with pytest.raises(kind) as refused:
        await ask(matcher)
    assert type(refused.value) is kind
    assert str(refused.value)


async def test_before_init_calls_are_refused(matcher: Fluxion) -> None:
    with pytest.raises(NotInitialised, match="call Init first"):
        await matcher.stat(call=CallContext())


async def test_a_graph_with_a_frozen_clock_refuses_a_time(matcher: Fluxion) -> None:
    await matcher.init("lonode", jgf=cluster_jgf())
    await matcher.match(make_jobspec(core=1))
    with pytest.raises(ClockMixed):
        await matcher.match_batch([JobMatchRequest(make_jobspec(core=1), 2)], call=CALL)


async def test_a_negative_time_is_refused(fluxion: AsyncFluxionClient) -> None:
    await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
    with pytest.raises(InvalidCall, match="call.now is -1"):
        await fluxion.stat(call=CallContext(now=-1))


# ---- the client without asyncio ----------------------------------------------------------------------------


async def test_the_blocking_client_gives_the_same_answers(server: RunningServer) -> None:
    def work() -> None:
        with FluxionClient(f"127.0.0.1:{server.port}") as fluxion:
            fluxion.wait_reachable(5)
            with pytest.raises(NotInitialised):
                fluxion.stat(call=CALL)
            instance = fluxion.init("lonode", nodes=[make_node("a"), make_node("b")], call=CALL)
            batch = fluxion.match_batch([JobMatchRequest(CORE, 1)], call=CALL)
            assert batch.instance == instance
            assert fluxion.info(1, call=CALL).shares == batch.results[0].shares
            assert [job.jobid for job in fluxion.list_jobs(call=CALL)] == [1]
            assert fluxion.satisfy(CORE, call=CALL).verdict is MatchVerdict.GRANTED
            assert fluxion.reserve_at(2, CORE, NOW + 60, call=CALL).verdict is MatchVerdict.RESERVED
            assert fluxion.apply([ExtendJob(1, NOW + 30)], call=CALL).done
            assert fluxion.apply([CancelPart(1, batch.results[0].shares)], call=CALL).done
            assert fluxion.apply([CancelJobs([1, 2])], call=CALL).done
            assert fluxion.apply(
                [RestoreJobs([RestoredJob(3, batch.results[0].shares, NOW)])], call=CALL
            ).done
            assert fluxion.stat(call=CALL).allocated_jobs == 1
            with pytest.raises(ClockMixed):
                fluxion.match(CORE)
            fluxion.cancel(3)
            assert fluxion.list_jobs(call=CALL) == ()

    await asyncio.to_thread(work)


async def test_the_blocking_client_changes_the_graph(server: RunningServer) -> None:
    def work() -> None:
        with FluxionClient(f"127.0.0.1:{server.port}") as fluxion:
            fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
            assert fluxion.apply([AddNodes([make_node("b")])], call=CALL).done
            assert fluxion.apply([SetNodeStatus({"a": False})], call=CALL).done
            assert fluxion.apply([SetProperties({"b": {"x": "y"}})], call=CALL).done
            assert fluxion.apply([ResizeSystem([NodeShare("b", amounts={"cpu": 100})])], call=CALL).done
            assert fluxion.apply([RemoveNodes(["a"])], call=CALL).done
            assert fluxion.apply([], call=CALL).done
            assert fluxion.stat(call=CALL).nodes == 1

    await asyncio.to_thread(work)


async def test_a_graph_of_many_megabytes_is_one_message(fluxion: AsyncFluxionClient) -> None:
    properties = {f"label-{number}": "x" * 60 for number in range(2_000)}
    nodes = [
        GraphNodeSpec(f"n{number}", (Pool("cpu", 100, 100),), properties=properties) for number in range(60)
    ]
    await fluxion.init("lonode", nodes=nodes, call=CALL)
    jgf = cluster_jgf(cores=20_000)
    assert len(jgf) > 4 * 2**20
    await fluxion.init("lonode", jgf=jgf, call=CALL)
    batch = await fluxion.match_batch(
        [JobMatchRequest(make_jobspec(core=20_000), 1)], call=CALL, with_allocation=True
    )
    assert len(batch.results[0].allocation) > 2 * 2**20


async def test_a_graph_described_twice_is_refused_by_the_service(server: RunningServer) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary(
            "/fluxion.FluxionService/Init", request_serializer=pb.InitRequest.SerializeToString
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(pb.InitRequest(jgf="{}", nodes_given=True))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "both jgf and nodes" in (refused.value.details() or "")


async def test_a_negative_epoch_is_refused(fluxion: AsyncFluxionClient) -> None:
    await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
    with pytest.raises(InvalidCall, match="call.epoch is -3"):
        await fluxion.stat(call=CallContext(epoch=-3))


async def test_a_message_beyond_the_limit_is_refused_before_it_is_sent(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 2**20  # to encode the real limit, 256 MiB, takes seconds of the loop on a slow machine
    monkeypatch.setattr("fluxqueue.fluxion.rpc.client.MAX_MESSAGE_BYTES", most)
    async with AsyncFluxionClient(f"127.0.0.1:{server.port}") as client:
        with pytest.raises(InvalidCall, match="MatchBatch is larger than"):
            await client.match_batch([JobMatchRequest("x" * (most + 1), 1)], call=CALL)


async def test_a_jobspec_of_a_hundred_megabytes_is_read_and_refused(fluxion: AsyncFluxionClient) -> None:
    await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
    batch = await fluxion.match_batch([JobMatchRequest("x" * 100_000_000, 1)], call=CALL)
    assert batch.results[0].verdict is MatchVerdict.INVALID
    assert batch.results[0].reason


async def test_a_proxy_for_the_internet_is_not_asked_for_the_service(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with AsyncFluxionClient(f"localhost:{server.port}") as client:
            await client.init("lonode", nodes=[make_node("a")], call=CALL)
            assert (await client.stat(call=CALL)).allocated_jobs == 0
