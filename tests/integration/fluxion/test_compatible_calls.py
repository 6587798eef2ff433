"""Init, Match and Cancel as a client of the Go service sees them: raw messages over a plain channel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass
from support.fluxionrequests import cluster_jgf, make_jobspec

from fluxqueue.fluxion.rpc.server import RunningServer
from fluxqueue.proto.v1 import fluxion_pb2 as pb

Stub = Any
FAILED = "[Fluxion] Error in ReapiCliMatchAllocate"


@pytest.fixture
async def stub(server: RunningServer) -> AsyncIterator[Stub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        service = pb.DESCRIPTOR.services_by_name["FluxionService"]
        yield SimpleNamespace(
            **{
                method.name: channel.unary_unary(
                    f"/{service.full_name}/{method.name}",
                    request_serializer=GetMessageClass(method.input_type).SerializeToString,
                    response_deserializer=GetMessageClass(method.output_type).FromString,
                )
                for method in service.methods
            }
        )


@pytest.fixture
async def ready(stub: Stub) -> Stub:
    await stub.Init(pb.InitRequest(policy="lonode", jgf=cluster_jgf()))
    return stub


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


def trailing(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    return dict(error.trailing_metadata())


async def test_a_graph_loads_and_jobs_are_matched_numbered_and_cancelled(stub: Stub) -> None:
    loaded = await stub.Init(pb.InitRequest(policy="lonode", jgf=cluster_jgf()))
    assert loaded.status == pb.InitResponse.INIT_SUCCESS
    first = await stub.Match(pb.MatchRequest(jobspec=make_jobspec(core=4)))
    assert (first.status, first.jobid, first.reserved, first.at) == (
        pb.MatchResponse.MATCH_SUCCESS,
        1,
        False,
        0,
    )
    assert first.overhead > 0
    assert first.allocation.endswith("\n")
    paths = [
        node["metadata"]["paths"]["containment"] for node in json.loads(first.allocation)["graph"]["nodes"]
    ]
    assert paths[-2:] == ["/cluster0/node0", "/cluster0"]
    second = await stub.Match(pb.MatchRequest(jobspec=make_jobspec(core=4)))
    assert second.jobid == 2
    cancelled = await stub.Cancel(pb.CancelRequest(jobID=1))
    assert cancelled == pb.CancelResponse()
    third = await stub.Match(pb.MatchRequest(jobspec=make_jobspec(core=4)))
    assert third.allocation == first.allocation


async def test_a_failed_match_has_the_words_of_the_go_service_and_a_reason(ready: Stub) -> None:
    error = await failure(ready.Match(pb.MatchRequest(jobspec=make_jobspec(core=5))))
    assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, FAILED)
    assert trailing(error)["fluxion-reason"]


@pytest.mark.parametrize(
    "jobspec",
    ["", "nonsense: [", make_jobspec(core=0), make_jobspec(core=1, duration=-1), "🦆", "{}"],
    ids=range(6),
)
async def test_an_unreadable_jobspec_fails_like_any_match(ready: Stub, jobspec: str) -> None:
    error = await failure(ready.Match(pb.MatchRequest(jobspec=jobspec)))
    assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, FAILED)
    assert trailing(error)["fluxion-reason"].isprintable()


async def test_a_reservation_has_its_start(ready: Stub) -> None:
    for _ in range(2):
        await ready.Match(pb.MatchRequest(jobspec=make_jobspec(core=4, duration=60)))
    later = await ready.Match(pb.MatchRequest(jobspec=make_jobspec(core=4, duration=60), reservation=True))
    assert (later.reserved, later.at) == (True, 60)
    assert later.allocation


async def test_the_field_request_is_ignored(ready: Stub) -> None:
    matched = await ready.Match(pb.MatchRequest(jobspec=make_jobspec(core=1), request="satisfiability"))
    assert matched.jobid == 1


async def test_cancelling_an_unknown_job_is_success(ready: Stub) -> None:
    assert await ready.Cancel(pb.CancelRequest(jobID=99)) == pb.CancelResponse()


@pytest.mark.parametrize(
    ("policy", "jgf"),
    [("foo", cluster_jgf()), ("lonode", "{"), ("", ""), ("policy", cluster_jgf())],
    ids=range(4),
)
async def test_an_init_that_fails_has_the_words_of_the_go_service(stub: Stub, policy: str, jgf: str) -> None:
    error = await failure(stub.Init(pb.InitRequest(policy=policy, jgf=jgf)))
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNKNOWN,
        "issue initializing resource api client -1",
    )
    assert trailing(error)["fluxion-reason"]


async def test_an_init_that_fails_keeps_the_loaded_graph(ready: Stub) -> None:
    await failure(ready.Init(pb.InitRequest(policy="lonode", jgf="{")))
    assert (await ready.Match(pb.MatchRequest(jobspec=make_jobspec(core=1)))).jobid == 1


async def test_an_empty_policy_is_first(stub: Stub) -> None:
    await stub.Init(pb.InitRequest(jgf=cluster_jgf()))
    assert (await stub.Stat(pb.StatRequest())).policy == "first"


@pytest.mark.parametrize("method", ["Match", "Cancel", "MatchBatch", "Stat", "List", "Apply"])
async def test_before_init_every_call_is_refused(stub: Stub, method: str) -> None:
    request = getattr(pb, f"{method}Request")()
    error = await failure(getattr(stub, method)(request))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "Init" in (error.details() or "")
    assert trailing(error)["fluxion-error"] == "not-initialised"


async def test_bytes_that_are_no_message_are_an_invalid_argument(server: RunningServer) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary("/fluxion.FluxionService/Stat")
        error = await failure(call(b"\xff\xff\xff"))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no fluxion.StatRequest message" in (error.details() or "")


async def test_an_unknown_rpc_is_unimplemented(server: RunningServer) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        error = await failure(channel.unary_unary("/fluxion.FluxionService/Grow")(b""))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
