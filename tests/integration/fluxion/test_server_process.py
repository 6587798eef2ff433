"""Where the service listens, its health, reflection and metrics, and the life of its process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from support.fluxion_service import NOT_SERVING, SERVICE, SERVING, HeldEngine, health, until
from support.fluxionrequests import cluster_jgf, make_jobspec, make_node

from fluxqueue.fluxion.messages import CallContext, JobMatchRequest
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.fluxion.rpc.server import CannotServe, FluxionServerSettings, RunningServer, ServerTls, serve

CALL = CallContext(now=1_700_000_000)


async def test_the_process_is_healthy_at_once_and_the_service_after_init(fluxion: AsyncFluxionClient) -> None:
    assert await health(fluxion.target, "") == SERVING
    assert await health(fluxion.target, SERVICE) == NOT_SERVING
    await fluxion.init("lonode", jgf=cluster_jgf())
    assert await health(fluxion.target, SERVICE) == SERVING


async def test_a_client_notices_at_once_that_the_service_ended() -> None:
    async with serve(FluxionServerSettings(port=0)) as running:
        fluxion = AsyncFluxionClient(f"127.0.0.1:{running.port}")
        await fluxion.init("lonode", jgf=cluster_jgf())
        await fluxion.wait_for_loss(0.01)
        waiting = asyncio.create_task(fluxion.wait_for_loss(600))
        await fluxion.stat(call=CALL)
        assert not waiting.done()
    async with asyncio.timeout(60):
        await waiting
    await fluxion.close()


async def test_the_health_port_answers_checks_and_nothing_else() -> None:
    async with (
        serve(FluxionServerSettings(port=0, health_port=0)) as running,
        AsyncFluxionClient(f"127.0.0.1:{running.port}") as fluxion,
    ):
        probed = f"127.0.0.1:{running.health_port}"
        assert (await health(probed, ""), await health(probed, SERVICE)) == (SERVING, NOT_SERVING)
        await fluxion.init("lonode", jgf=cluster_jgf())
        assert await health(probed, SERVICE) == SERVING
        async with grpc.aio.insecure_channel(probed) as channel:
            calls = [
                channel.unary_unary(f"/{SERVICE}/Stat")(b"", timeout=10),
                channel.unary_unary(f"/{SERVICE}/Init")(b"", timeout=10),
                channel.unary_unary("/grpc.health.v1.Health/Watch")(b"", timeout=10),
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answer.code() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)] == [
        grpc.StatusCode.UNIMPLEMENTED
    ] * 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_health_is_answered_by_ipv6() -> None:
    async with serve(FluxionServerSettings(port=0, health_host="::", health_port=0)) as running:
        assert await health(f"[::1]:{running.health_port}", "") == SERVING


async def test_the_service_describes_itself(fluxion: AsyncFluxionClient) -> None:
    async with grpc.aio.insecure_channel(fluxion.target) as channel:
        stream = ServerReflectionStub(channel).ServerReflectionInfo()
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {service.name for service in (await stream.read()).list_services_response.service}
        await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
        described = (await stream.read()).file_descriptor_response.file_descriptor_proto
        await stream.done_writing()
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert any(b"MatchBatch" in file for file in described)


async def test_calls_verdicts_and_the_graph_are_measured() -> None:
    async with serve(FluxionServerSettings(port=0, metrics_port=0)) as running:

        def scrape() -> dict[str, float]:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=30
            ) as answer:
                lines = answer.read().decode().splitlines()
            return {
                name: float(value)
                for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            }

        assert "fluxion_vertices" not in await asyncio.to_thread(scrape)
        async with AsyncFluxionClient(f"127.0.0.1:{running.port}") as fluxion:
            await fluxion.init("lonode", nodes=[make_node("a"), make_node("b", down=True)], call=CALL)
            jobs = [
                JobMatchRequest(make_jobspec(cpu=1_000), 1),
                JobMatchRequest(make_jobspec(cpu=99_000), 2, explain=True),
            ]
            await fluxion.match_batch(jobs, call=CALL)
            with pytest.raises(Exception, match="instance"):
                await fluxion.stat(call=CallContext(instance="other"))
        seen = await asyncio.to_thread(scrape)
    assert seen['fluxion_calls_total{code="OK",method="MatchBatch"}'] == 1
    assert seen['fluxion_calls_total{code="ABORTED",method="Stat"}'] == 1
    assert seen['fluxion_verdicts_total{verdict="granted"}'] == 1
    assert seen['fluxion_verdicts_total{verdict="unsatisfiable"}'] == 1
    assert seen['fluxion_call_seconds_count{method="Init"}'] == 1
    assert (seen['fluxion_nodes{status="up"}'], seen['fluxion_nodes{status="down"}']) == (1, 1)
    assert seen['fluxion_jobs{mode="allocated"}'] == 1
    assert seen['fluxion_resource_free{type="cpu"}'] == 3_000


async def test_a_scrape_does_not_wait_for_a_long_match() -> None:
    engine = HeldEngine()
    async with (
        serve(FluxionServerSettings(port=0, metrics_port=0), engine) as running,
        AsyncFluxionClient(f"127.0.0.1:{running.port}") as fluxion,
    ):
        await fluxion.init("lonode", jgf=cluster_jgf())
        match = asyncio.create_task(fluxion.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)

        def scrape() -> bytes:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=30
            ) as answer:
                return bytes(answer.read())

        text = await asyncio.to_thread(scrape)
        engine.gate.set()
        await match
    assert b'fluxion_calls_total{code="OK",method="Init"} 1.0' in text
    assert b"fluxion_vertices" not in text


async def test_a_port_that_is_taken_is_named(server: RunningServer) -> None:
    with pytest.raises(CannotServe, match=f"cannot listen on 127.0.0.1:{server.port}"):
        async with serve(FluxionServerSettings(port=server.port)):
            pytest.fail("it listens")


async def test_a_metrics_port_that_is_taken_is_named(server: RunningServer) -> None:
    with pytest.raises(CannotServe, match="cannot serve metrics"):
        async with serve(FluxionServerSettings(port=0, metrics_port=server.port)):
            pytest.fail("it listens")


async def test_a_health_port_that_is_taken_is_named(server: RunningServer) -> None:
    with pytest.raises(CannotServe, match="cannot serve health on .*--health-port"):
        async with serve(FluxionServerSettings(port=0, health_port=server.port)):
            pytest.fail("it listens")


async def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match=r"cannot read .*tls\.crt: No such file"):
        async with serve(
            FluxionServerSettings(port=0, tls=ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key"))
        ):
            pytest.fail("it listens")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_serves_until_sigterm(number: signal.Signals) -> None:
    words = ["-W", "error", "-m", "fluxqueue.fluxion.main", "--port", "0"]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr
        async with asyncio.timeout(60):
            started = json.loads(await process.stderr.readline())
            assert started["event"] == "fluxion.serving"
            async with AsyncFluxionClient(started["address"]) as fluxion:
                await fluxion.init("lonode", jgf=cluster_jgf())
                process.send_signal(number)
                rest = await process.stderr.read()
                assert await process.wait() == 0
        assert json.loads(rest.splitlines()[-1])["event"] == "fluxion.stopped"
        assert b"Traceback" not in rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_calls_under_way_are_finished_at_the_end() -> None:
    engine = HeldEngine()
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(serve(FluxionServerSettings(port=0, grace_s=20), engine))
        fluxion = AsyncFluxionClient(f"127.0.0.1:{running.port}")
        await fluxion.init("lonode", jgf=cluster_jgf())
        match = asyncio.create_task(fluxion.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)
        stopping = asyncio.create_task(stack.aclose())

        async def has_begun() -> bool:
            try:
                return await health(fluxion.target, "") == int(NOT_SERVING)
            except grpc.aio.AioRpcError:
                return True

        await until(has_begun)
        assert not stopping.done()
        engine.gate.set()
        assert (await match).jobid == 1
        await stopping
        await fluxion.close()
