"""The service around the engine: one request after the other, and nothing lost when a caller leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from support.fluxion_service import SERVICE, SERVING, HeldEngine, health, until
from support.fluxionrequests import cluster_jgf, make_jobspec, make_node

from fluxqueue.fluxion.compat.requests import CompatMatch, MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import Errno, MatchError
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchResult, Stat
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient, Deadlines
from fluxqueue.fluxion.rpc.failures import DeadlinePassed, InternalError
from fluxqueue.fluxion.rpc.server import FluxionServerSettings, serve
from fluxqueue.proto.v1 import fluxion_pb2 as pb

CALL = CallContext(now=1_700_000_000)


class BrokenEngine(Engine):
    """An engine with a defect."""

    def stat(self, call: CallContext = CALL, per_node: bool = False) -> Stat:
        raise ZeroDivisionError("secret internals")


@contextlib.asynccontextmanager
async def serving(engine: Engine | None = None, *, call_s: float = 20.0) -> AsyncIterator[AsyncFluxionClient]:
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(serve(FluxionServerSettings(port=0, grace_s=5), engine))
        target = f"127.0.0.1:{running.port}"
        yield await stack.enter_async_context(AsyncFluxionClient(target, deadlines=Deadlines(call_s=call_s)))


@pytest.fixture
def entries() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logged:
        yield logged


async def noticed(entries: list[Any], fluxion: AsyncFluxionClient) -> None:
    """Return when the service has noticed that a caller has given up."""

    async def logged() -> bool:
        await health(fluxion.target, "")
        return any(entry["event"] == "fluxion.caller_left" for entry in entries)

    await until(logged)


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
            answer = await HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=SERVICE), timeout=5
            )
        assert answer.status == SERVING
        engine.gate.set()
        await match


async def test_a_match_whose_caller_has_left_leaves_no_allocation(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with serving(engine, call_s=0.3) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        with pytest.raises(DeadlinePassed):
            await fluxion.match(make_jobspec(core=1))
        assert engine.started == 1
        await noticed(entries, fluxion)
        engine.gate.set()

        async def undone() -> bool:
            return (await fluxion.info(1, call=CallContext())).mode == "canceled"

        await until(undone)
        assert await fluxion.list_jobs(call=CallContext()) == ()


async def test_a_match_answered_after_its_deadline_is_undone(entries: list[Any]) -> None:
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
            return await fluxion.list_jobs(call=CallContext()) == ()

        await until(undone)
    assert [entry["event"] for entry in entries if entry["event"] == "fluxion.undone"]


async def test_a_batch_whose_caller_has_left_keeps_jobs_with_ids_of_the_caller(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with serving(engine, call_s=0.3) as fluxion:
        await fluxion.init("lonode", nodes=[make_node("a")], call=CALL)
        one_core = make_jobspec(cpu=1_000)
        with pytest.raises(DeadlinePassed):
            await fluxion.match_batch([JobMatchRequest(one_core, 77), JobMatchRequest(one_core)], call=CALL)
        await noticed(entries, fluxion)
        engine.gate.set()

        async def undone() -> bool:
            return [job.jobid for job in await fluxion.list_jobs(call=CALL)] == [77]

        await until(undone)
        again = await fluxion.match_batch([JobMatchRequest(one_core, 77)], call=CALL)
        assert [result.verdict for result in again.results] == ["granted"]
        assert (await fluxion.stat(call=CALL)).allocated_jobs == 1


async def test_a_request_whose_caller_left_before_its_turn_never_begins(entries: list[Any]) -> None:
    engine = HeldEngine()
    async with (
        serving(engine) as patient,
        AsyncFluxionClient(patient.target, deadlines=Deadlines(call_s=0.2)) as hasty,
    ):
        await patient.init("lonode", jgf=cluster_jgf())
        first = asyncio.create_task(patient.match(make_jobspec(core=1)))
        assert await asyncio.to_thread(engine.under_way.wait, 20)
        with pytest.raises(DeadlinePassed):
            await hasty.match(make_jobspec(core=1))
        await noticed(entries, patient)
        engine.gate.set()
        assert (await first).jobid == 1
        assert [job.jobid for job in await patient.list_jobs(call=CallContext())] == [1]
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


async def test_an_unexpected_error_is_one_sentence_to_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(BrokenEngine()) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        with pytest.raises(InternalError) as failed:
            await fluxion.stat(call=CallContext())
        assert "Stat met a state of the graph it did not expect" in str(failed.value)
        assert "secret" not in str(failed.value)
        assert "Traceback" not in str(failed.value)
        assert (await fluxion.match(make_jobspec(core=1))).jobid == 1
    assert "secret internals" in capsys.readouterr().out


async def test_a_long_reason_is_cut_to_the_size_of_metadata() -> None:
    class Talkative(Engine):
        def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
            raise MatchError(Errno.EINVAL, "Ünexpected\n" * 10_000)

    async with serving(Talkative()) as fluxion:
        await fluxion.init("lonode", jgf=cluster_jgf())
        async with grpc.aio.insecure_channel(fluxion.target) as channel:
            call = channel.unary_unary(
                "/fluxion.FluxionService/Match", request_serializer=pb.MatchRequest.SerializeToString
            )
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call(pb.MatchRequest(jobspec="{}"))
        reason = dict(failed.value.trailing_metadata())["fluxion-reason"]
        assert reason.startswith("\\xdcnexpected \\xdcnexpected")
        assert len(reason) <= 2_000
