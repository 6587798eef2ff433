"""The client with a service that is not ours, restarts, or is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from support.fluxion_service import SERVICE
from support.fluxionrequests import cluster_jgf, make_jobspec, make_node

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.fluxion.rpc.failures import DeadlinePassed, FluxionUnavailable, Unsupported
from fluxqueue.fluxion.rpc.server import FluxionServerSettings, serve
from fluxqueue.proto.v1 import fluxion_pb2 as pb

CALL = CallContext(now=1_700_000_000)


@pytest.fixture
async def go_service() -> AsyncIterator[str]:
    """What the Go service answers, where its answers differ from ours."""

    async def init(request: pb.InitRequest, context: Any) -> pb.InitResponse:
        if not request.jgf:
            await context.abort(grpc.StatusCode.UNKNOWN, "issue initializing resource api client -1")
        return pb.InitResponse()

    async def match(request: pb.MatchRequest, context: Any) -> pb.MatchResponse:
        return pb.MatchResponse(allocation="{}\n", jobid=1)

    async def cancel(request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        return pb.CancelResponse()

    def unary(behaviour: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            behaviour, request.FromString, lambda message: message.SerializeToString()
        )

    methods = {
        "Init": unary(init, pb.InitRequest),
        "Match": unary(match, pb.MatchRequest),
        "Cancel": unary(cancel, pb.CancelRequest),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_the_three_calls_work_with_a_go_service(go_service: str) -> None:
    async with AsyncFluxionClient(go_service) as fluxion:
        assert await fluxion.init("lonode", jgf=cluster_jgf()) == ""
        assert (await fluxion.match(make_jobspec())).jobid == 1
        await fluxion.cancel(1)


async def test_a_call_that_the_go_service_lacks_is_unsupported(go_service: str) -> None:
    async with AsyncFluxionClient(go_service) as fluxion:
        with pytest.raises(
            Unsupported, match=r"lacks MatchBatch: the Go service knows Init, Match, Cancel only"
        ):
            await fluxion.match_batch([JobMatchRequest(make_jobspec(), 1)], call=CALL)
        with pytest.raises(Unsupported, match="cannot Init from nodes"):
            await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
        with pytest.raises(Unsupported, match="neither nodes nor epochs"):
            await fluxion.init("lonode", jgf=cluster_jgf(), call=CALL)


async def test_an_idempotent_call_survives_a_restart_of_the_service() -> None:
    engine = Engine()
    async with serve(FluxionServerSettings(port=0), engine) as first:
        port = first.port
        fluxion = AsyncFluxionClient(f"127.0.0.1:{port}")
        await fluxion.init("lonode", jgf=cluster_jgf())
    async with fluxion:
        asked = asyncio.create_task(fluxion.stat(call=CallContext()))
        async with serve(FluxionServerSettings(port=port), engine):
            assert (await asked).nodes == 2


async def test_a_match_is_not_sent_again() -> None:
    async with AsyncFluxionClient("127.0.0.1:9") as fluxion:
        with pytest.raises(FluxionUnavailable, match="Match got no answer from 127.0.0.1:9"):
            await fluxion.match(make_jobspec())


async def test_waiting_for_a_missing_service_ends() -> None:
    async with AsyncFluxionClient("127.0.0.1:9") as fluxion:
        with pytest.raises(DeadlinePassed, match="within 0.2 s"):
            await fluxion.wait_reachable(0.2)
