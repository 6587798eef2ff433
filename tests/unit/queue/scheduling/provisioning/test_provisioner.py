"""Requests for nodes, by ProvisioningRequest and by room pods:
they are there while work waits for nodes, whatever happens between.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from support.builders import make_queue
from support.controller_bench import running_controllers, until
from support.node_request_bench import NAMESPACE, NodeRequestBench
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Provision
from fluxqueue.kube.errors import Unreachable
from fluxqueue.kube.wire import Request
from fluxqueue.queue.scheduling.provisioning.node_requests import NodeRequest


@pytest.fixture(params=["gate", "pods"])
def bench(request: pytest.FixtureRequest) -> NodeRequestBench:
    return NodeRequestBench(request.param)


async def test_work_has_a_request_as_long_as_it_waits_for_nodes(bench: NodeRequestBench) -> None:
    async with running_controllers(bench.provisioner()):
        row = bench.wait("grows")
        other = bench.wait("stays", reason=Reason.WAITING_FOR_NODES)
        await until(lambda: bench.count() == 3)
        bench.ledger.put(replace(row, reason=Reason.WAITING_FOR_NODES))
        await until(bench.nothing)
        bench.ledger.put(replace(other, reason=Reason.PROVISIONING))
        await until(lambda: bench.count() == 3)
        bench.ledger.end(other)
        await until(bench.nothing)


async def test_a_changed_workload_has_another_request(bench: NodeRequestBench) -> None:
    async with running_controllers(bench.provisioner()):
        row = bench.wait("grows")
        await until(lambda: bench.count() == 3)
        first = {*bench.rooms(), *bench.requests()}
        bench.ledger.put(replace(row, shape="another-shape", pods=2))
        await until(lambda: bench.count() == 2)
        assert not first & {*bench.rooms(), *bench.requests()}


async def test_the_resync_repairs_what_somebody_deleted(bench: NodeRequestBench) -> None:
    provisioner = bench.provisioner()
    async with running_controllers(provisioner):
        bench.wait("grows")
        await until(lambda: bench.count() == 3)
        if bench.way == "pods":
            bench.server.remove("pods", min(bench.rooms()), NAMESPACE)
        else:
            bench.server.remove("provisioningrequests", min(bench.requests()))
        assert bench.count() < 3
        provisioner.resync()
        await until(lambda: bench.count() == 3)


async def test_what_is_missing_before_a_request_is_complete_is_made_again(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisioner = bench.provisioner()
    made, go_on, ways = asyncio.Event(), asyncio.Event(), provisioner._ways
    create = {way: requester.create for way, requester in ways.items()}

    def held(way: Provision) -> Callable[[NodeRequest], Awaitable[None]]:
        async def create_and_wait(request: NodeRequest) -> None:
            await create[way](request)
            made.set()
            await go_on.wait()

        return create_and_wait

    for way, requester in ways.items():
        monkeypatch.setattr(requester, "create", held(way))
    async with running_controllers(provisioner):
        bench.wait("grows")
        await asyncio.wait_for(made.wait(), 5)
        if bench.way == "pods":
            bench.server.remove("pods", min(bench.rooms()), NAMESPACE)
        else:
            bench.server.remove("provisioningrequests", min(bench.requests()))
        marks = dict(provisioner._incomplete)
        provisioner.resync()
        await until(lambda: provisioner._incomplete != marks)
        go_on.set()
        await until(lambda: bench.count() == 3)


async def test_a_new_leader_deletes_what_nobody_waits_for_and_keeps_the_rest(bench: NodeRequestBench) -> None:
    async with running_controllers(bench.provisioner()):
        gone, kept = bench.wait("gone"), bench.wait("kept", 2)
        await until(lambda: bench.count() == 5)
    bench.ledger.end_in_tables(gone)
    rows = RecordingLedger((kept, None))
    bench.ledger = rows
    before = {name: body["metadata"]["uid"] for name, body in {**bench.rooms(), **bench.requests()}.items()}
    async with running_controllers(bench.provisioner()):
        await until(lambda: bench.count() == 2)
    after = {name: body["metadata"]["uid"] for name, body in {**bench.rooms(), **bench.requests()}.items()}
    assert after.items() <= before.items(), "none was made anew"


CALLS = [
    ("create", "pods"),
    ("patch", "pods/status"),
    ("create", "podtemplates"),
    ("create", "provisioningrequests"),
]


@pytest.mark.parametrize("calls", range(8))
async def test_a_leader_that_dies_after_any_call_leaves_what_the_next_completes(
    bench: NodeRequestBench, calls: int
) -> None:
    row = bench.wait("grows")
    answer, number, dead = bench.server.call, itertools.count(), asyncio.Event()

    async def until_it_dies(request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        if not request.reads and next(number) >= calls:
            dead.set()
            raise Unreachable("the process is gone", sent=False)
        return await answer(request, timeout_s, tries=tries)

    bench.server.call = until_it_dies  # type: ignore[method-assign]
    async with running_controllers(bench.provisioner()):
        await until(lambda: dead.is_set() or bench.count() == 3)
    bench.server.call = answer  # type: ignore[method-assign]
    async with running_controllers(bench.provisioner()):
        await until(lambda: bench.count() == 3)
        bench.ledger.end(row)
        await until(bench.nothing)


async def test_a_request_that_fails_in_part_is_deleted_when_the_work_is_gone(bench: NodeRequestBench) -> None:
    row = bench.wait("grows")
    for verb, resource in CALLS:
        for _ in range(2):
            bench.server.fail_next(verb, resource, 500, "InternalError")
    async with running_controllers(bench.provisioner()):
        await until(lambda: bench.server.calls_refused)
        bench.ledger.end(row)
        await until(bench.nothing)


async def test_a_queue_that_changes_the_way_changes_the_requests(bench: NodeRequestBench) -> None:
    async with running_controllers(bench.provisioner()):
        bench.wait("grows")
        await until(lambda: bench.count() == 3)
        by_pods = bool(bench.rooms())
        bench.server.put("fluxqueues", make_queue("growing", provision="gate" if by_pods else "pods"))
        await until(
            lambda: (
                bool(bench.rooms()) is not by_pods
                and bool(bench.requests()) is by_pods
                and bench.count() == 3
            )
        )
        bench.server.put("fluxqueues", make_queue("growing"))
        await until(bench.nothing)


async def test_what_the_api_server_refuses_is_reported_and_repeated_later(bench: NodeRequestBench) -> None:
    for _, resource in CALLS[::2]:
        bench.server.fail_next("create", resource, 403, "Forbidden", "exceeded quota")
    async with running_controllers(bench.provisioner()):
        bench.wait("grows")
        await until(lambda: bench.events.events)
        await until(bench.nothing)
    (event,) = bench.events.events
    assert event[:2] == ("Job grows", "ProvisioningFailed")
    assert "exceeded quota" in event[2]
    assert event[2].endswith("it is requested again in 5 minutes")
