"""What stands around the engine: one request after the other, health, reflection, metrics, encryption, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from fluxionrequests import cluster_jgf, make_jobspec, make_node
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from fluxqueue.fluxion.client import AsyncFluxionClient, Deadlines
from fluxqueue.fluxion.compat import CompatMatch, MatchRequestKind
from fluxqueue.fluxion.engine import Engine
from fluxqueue.fluxion.errors import Errno, MatchError
from fluxqueue.fluxion.failures import DeadlinePassed, FluxionUnavailable, InternalError, Unsupported
from fluxqueue.fluxion.messages import Call, JobRequest, MatchBatch, MatchResult, Stat
from fluxqueue.fluxion.server import CannotListen, RunningServer, ServerTls, Settings, serve
from fluxqueue.proto.v1 import fluxion_pb2 as pb

SERVICE = "fluxion.FluxionService"
CALL = Call(now=1_700_000_000)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HeldEngine(Engine):
    """An engine whose matches wait at a gate, so that a test decides when one is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.under_way = threading.Event()
        self.started = 0
        self.most_at_once = 0
        self._at_once = 0

    def _hold(self) -> None:
        self.started += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.under_way.set()
        assert self.gate.wait(20)
        self._at_once -= 1

    def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
        self._hold()
        return super().match(jobspec, request)

    def match_batch(self, *arguments: Any, **more: Any) -> MatchBatch:
        self._hold()
        return super().match_batch(*arguments, **more)


class BrokenEngine(Engine):
    """An engine with a defect."""

    def stat(self, call: Call = CALL, per_node: bool = False) -> Stat:
        raise ZeroDivisionError("secret internals")


@contextlib.asynccontextmanager
async def serving(engine: Engine | None = None, *, call_s: float = 20.0) -> AsyncIterator[AsyncFluxionClient]:
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(serve(Settings(port=0, grace_s=5), engine))
        target = f"127.0.0.1:{running.port}"
        yield await stack.enter_async_context(AsyncFluxionClient(target, deadlines=Deadlines(call_s=call_s)))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds; each question is a call to the service, so this waits for answers and not for time."""
    async with asyncio.timeout(20):
        while not await condition():
            pass


@pytest.fixture
def entries() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logged:
        yield logged


async def noticed(entries: list[Any], fluxion: AsyncFluxionClient) -> None:
    """Return when the service knows that a caller has given up, which it learns a moment after the caller does."""

    async def logged() -> bool:
        await health(fluxion.target, "")
        return any(entry["event"] == "fluxion.caller-gone" for entry in entries)

    await until(logged)


# ---- one after the other, and nothing lost ---------------------------------------------------------------------------------------


async def test_requests_are_carried_out_one_after_the_other() -> None:
    engine = HeldEngine()
    async with serving(engine) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf(8))
        matches = [asyncio.create_task(fluxion.match(make_jobspec(core=1))) for _ in range(20)]
        assert await asyncio.to_thread(engine.under_way.wait, 20)
        engine.gate.set()
        assert sorted(match.jobid for match in await asyncio.gather(*matches)) == list(range(1, 21))
    assert engine.most_at_once == 1


async def test_health_answers_while_a_match_is_under_way() -> None:
    engine = HeldEngine()
    async with serving(engine) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        match = asyncio.create_task(fluxion.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)
        async with grpc.aio.insecure_channel(fluxion.target) as channel:
            answer = await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=5)
        assert answer.status == SERVING
        engine.gate.set()
        await match


async def test_a_match_whose_caller_has_gone_leaves_no_allocation(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with serving(engine, call_s=0.3) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        with pytest.raises(DeadlinePassed):
            await fluxion.match(make_jobspec(core=1))
        assert engine.started == 1
        await noticed(entries, fluxion)
        engine.gate.set()

        async def undone() -> bool:
            return (await fluxion.info(1, call=Call())).mode == "canceled"

        await until(undone)
        assert await fluxion.list_jobs(call=Call()) == ()


async def test_an_answer_that_comes_after_its_deadline_is_taken_back(entries: list[Any]) -> None:
    class Late(Engine):
        """Holds the whole process up, so that nobody can notice the deadline before the answer is there."""

        def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
            found = super().match(jobspec, request)
            loop.call_soon_threadsafe(lambda: asleep.wait(0.4))
            return found

    loop, asleep = asyncio.get_running_loop(), threading.Event()
    async with serving(Late(), call_s=0.2) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        with pytest.raises(DeadlinePassed):
            await fluxion.match(make_jobspec(core=1))

        async def undone() -> bool:
            return await fluxion.list_jobs(call=Call()) == ()

        await until(undone)
    assert [entry["event"] for entry in entries if entry["event"] == "fluxion.undone"]


async def test_a_batch_whose_caller_has_gone_keeps_what_the_caller_can_ask_for_again(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with serving(engine, call_s=0.3) as fluxion:
        await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
        one_core = make_jobspec(cpu=1_000)
        with pytest.raises(DeadlinePassed):
            await fluxion.match_batch([JobRequest(one_core, 77), JobRequest(one_core)], call=CALL)
        await noticed(entries, fluxion)
        engine.gate.set()

        async def undone() -> bool:
            return [job.jobid for job in await fluxion.list_jobs(call=CALL)] == [77]

        await until(undone)
        again = await fluxion.match_batch([JobRequest(one_core, 77)], call=CALL)
        assert [result.verdict for result in again.results] == ["granted"]
        assert (await fluxion.stat(call=CALL)).allocated_jobs == 1


async def test_a_request_whose_caller_has_gone_before_its_turn_is_never_begun(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with serving(engine) as patient, AsyncFluxionClient(patient.target, deadlines=Deadlines(call_s=0.2)) as hasty:
        await patient.init("lonode", jgf=cluster_jgf())
        first = asyncio.create_task(patient.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)
        with pytest.raises(DeadlinePassed):
            await hasty.match(make_jobspec(core=1))
        await noticed(entries, patient)
        engine.gate.set()
        assert (await first).jobid == 1
        assert [job.jobid for job in await patient.list_jobs(call=Call())] == [1]
    assert engine.started == 1


async def test_a_reservation_under_an_id_of_the_service_is_undone_too(entries: list[Any]) -> None:
    class HeldReservations(HeldEngine):
        def reserve_at(self, *arguments: Any, **more: Any) -> MatchResult:
            self._hold()
            return super().reserve_at(*arguments, **more)

    engine = HeldReservations()
    async with serving(engine, call_s=0.3) as fluxion:
        await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
        with pytest.raises(DeadlinePassed):
            await fluxion.reserve_at(0, make_jobspec(cpu=1_000, duration=60), 1_700_000_600, call=CALL)
        await noticed(entries, fluxion)
        engine.gate.set()

        async def undone() -> bool:
            await health(fluxion.target, "")
            return any(entry["event"] == "fluxion.undone" for entry in entries)

        await until(undone)
        assert await fluxion.list_jobs(call=CALL) == ()


async def test_a_defect_is_one_sentence_to_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(BrokenEngine()) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        with pytest.raises(InternalError) as failed:
            await fluxion.stat(call=Call())
        assert "Stat met a state of the graph it did not expect" in str(failed.value)
        assert "secret" not in str(failed.value)
        assert "Traceback" not in str(failed.value)
        assert (await fluxion.match(make_jobspec(core=1))).jobid == 1
    assert "secret internals" in capsys.readouterr().out


async def test_a_long_reason_is_cut_to_what_metadata_can_carry() -> None:
    class Talkative(Engine):
        def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
            raise MatchError(Errno.EINVAL, "Ünexpected\n" * 10_000)

    async with serving(Talkative()) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        async with grpc.aio.insecure_channel(fluxion.target) as channel:
            call = channel.unary_unary("/fluxion.FluxionService/Match", request_serializer=pb.MatchRequest.SerializeToString)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call(pb.MatchRequest(jobspec="{}"))
        reason = dict(failed.value.trailing_metadata())["fluxion-reason"]
        assert reason.startswith("\\xdcnexpected \\xdcnexpected")
        assert len(reason) <= 2_000


# ---- the Go service ----------------------------------------------------------------------------------------------------------------


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
        return grpc.unary_unary_rpc_method_handler(behaviour, request.FromString, lambda message: message.SerializeToString())

    methods = {"Init": unary(init, pb.InitRequest), "Match": unary(match, pb.MatchRequest), "Cancel": unary(cancel, pb.CancelRequest)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_the_three_calls_work_against_a_service_that_has_no_more(go_service: str) -> None:
    async with AsyncFluxionClient(go_service) as fluxion:
        assert await fluxion.init("lonode", jgf=cluster_jgf()) == ""
        assert (await fluxion.match(make_jobspec())).jobid == 1
        await fluxion.cancel(1)


async def test_what_that_service_lacks_is_named(go_service: str) -> None:
    async with AsyncFluxionClient(go_service) as fluxion:
        with pytest.raises(Unsupported, match=r"lacks MatchBatch: the Go service knows Init, Match, Cancel only"):
            await fluxion.match_batch([JobRequest(make_jobspec(), 1)], call=CALL)
        with pytest.raises(Unsupported, match="cannot Init from nodes"):
            await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
        with pytest.raises(Unsupported, match="neither nodes nor epochs"):
            await fluxion.init("lonode", jgf=cluster_jgf(), call=CALL)


# ---- nobody there ------------------------------------------------------------------------------------------------------------------


async def test_a_call_that_may_be_repeated_survives_a_restart_of_the_service() -> None:
    engine = Engine()
    async with serve(Settings(port=0), engine) as first:
        port = first.port
        fluxion = AsyncFluxionClient(f"127.0.0.1:{port}")
        await fluxion.init("lonode", jgf=cluster_jgf())
    async with fluxion:
        asked = asyncio.create_task(fluxion.stat(call=Call()))
        async with serve(Settings(port=port), engine):
            assert (await asked).nodes == 2


async def test_a_match_is_not_sent_again() -> None:
    async with AsyncFluxionClient("127.0.0.1:9") as fluxion:
        with pytest.raises(FluxionUnavailable, match="Match got no answer from 127.0.0.1:9"):
            await fluxion.match(make_jobspec())


async def test_waiting_for_a_service_that_is_not_there_ends() -> None:
    async with AsyncFluxionClient("127.0.0.1:9") as fluxion:
        with pytest.raises(DeadlinePassed, match="within 0.2 s"):
            await fluxion.wait_reachable(0.2)


# ---- health, reflection, metrics ---------------------------------------------------------------------------------------------------


async def health(target: str, service: str) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        return int((await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))).status)


async def test_the_process_is_healthy_at_once_and_the_service_with_its_first_graph(fluxion: AsyncFluxionClient) -> None:
    assert await health(fluxion.target, "") == SERVING
    assert await health(fluxion.target, SERVICE) == NOT_SERVING
    await fluxion.init("lonode", jgf=cluster_jgf())
    assert await health(fluxion.target, SERVICE) == SERVING


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
    async with serve(Settings(port=0, metrics_port=0)) as running:

        def scrape() -> dict[str, float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

        assert "fluxion_vertices" not in await asyncio.to_thread(scrape)
        async with AsyncFluxionClient(f"127.0.0.1:{running.port}") as fluxion:
            await fluxion.init("lonode", nodes=[make_node("a"), make_node("b", down=True)], call=CALL)
            jobs = [JobRequest(make_jobspec(cpu=1_000), 1), JobRequest(make_jobspec(cpu=99_000), 2, explain=True)]
            await fluxion.match_batch(jobs, call=CALL)
            with pytest.raises(Exception, match="instance"):
                await fluxion.stat(call=Call(instance="other"))
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
    async with serve(Settings(port=0, metrics_port=0), engine) as running, AsyncFluxionClient(f"127.0.0.1:{running.port}") as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        match = asyncio.create_task(fluxion.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)

        def scrape() -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=10) as answer:
                return bytes(answer.read())

        text = await asyncio.to_thread(scrape)
        engine.gate.set()
        await match
    assert b'fluxion_calls_total{code="OK",method="Init"} 1.0' in text
    assert b"fluxion_vertices" not in text


# ---- where it listens --------------------------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_named(server: RunningServer) -> None:
    with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{server.port}"):
        async with serve(Settings(port=server.port)):
            pytest.fail("it listens")


async def test_a_metrics_port_that_is_taken_is_named(server: RunningServer) -> None:
    with pytest.raises(CannotListen, match="cannot serve metrics"):
        async with serve(Settings(port=0, metrics_port=server.port)):
            pytest.fail("it listens")


async def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match=r"cannot read .*tls\.crt: No such file"):
        async with serve(Settings(port=0, tls=ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key"))):
            pytest.fail("it listens")


# ---- the program -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_serves_until_it_is_told_to_stop(number: signal.Signals) -> None:
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
        running = await stack.enter_async_context(serve(Settings(port=0, grace_s=20), engine))
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
