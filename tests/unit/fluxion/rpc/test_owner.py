from __future__ import annotations

import asyncio
import threading

import pytest

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.rpc.owner import EngineOwner, OwnerClosed


async def test_work_is_done_in_one_thread_in_the_order_it_came() -> None:
    owner = EngineOwner(Engine())
    order: list[int] = []
    threads: set[str] = set()

    def work(number: int) -> None:
        order.append(number)
        threads.add(threading.current_thread().name)

    futures = [owner.submit(lambda _, number=number: work(number)) for number in range(50)]  # type: ignore[misc]  # a default in a lambda
    for future in futures:
        future.result(timeout=10)
    assert order == list(range(50))
    assert threads == {"fluxion-engine"}
    assert owner.close(10)


async def test_an_error_reaches_its_caller_and_the_thread_continues() -> None:
    owner = EngineOwner(Engine())

    def fail(_: Engine) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await owner.run(fail)
    assert await owner.run(lambda _: 3) == 3
    owner.close(10)


async def test_the_result_of_a_cancelled_caller_is_given_to_be_undone() -> None:
    owner = EngineOwner(Engine())
    gate, begun = threading.Event(), threading.Event()
    undone: list[str] = []

    def work(_: Engine) -> str:
        begun.set()
        assert gate.wait(10)
        return "allocation"

    task = asyncio.create_task(owner.run(work, lambda _, result: undone.append(result)))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await owner.run(lambda _: None)
    await owner.run(lambda _: None)
    assert undone == ["allocation"]
    owner.close(10)


async def test_work_that_failed_or_never_began_is_not_undone() -> None:
    owner = EngineOwner(Engine())
    gate, begun = threading.Event(), threading.Event()
    done: list[str] = []

    def work(_: Engine) -> None:
        begun.set()
        assert gate.wait(10)
        raise LookupError

    failing = asyncio.create_task(owner.run(work, lambda *_: done.append("undone")))
    assert await asyncio.to_thread(begun.wait, 10)
    waiting = asyncio.create_task(owner.run(lambda _: done.append("begun"), lambda *_: done.append("undone")))
    await asyncio.sleep(0)
    for task in (failing, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0)
    gate.set()
    await owner.run(lambda _: None)
    assert done == []
    owner.close(10)


async def test_closing_drops_what_waits_and_takes_no_more() -> None:
    owner = EngineOwner(Engine())
    gate, begun = threading.Event(), threading.Event()

    def work(_: Engine) -> str:
        begun.set()
        assert gate.wait(10)
        return "finished"

    under_way = owner.submit(work)
    assert await asyncio.to_thread(begun.wait, 10)
    waiting = owner.submit(lambda _: None)
    assert not owner.close(0)
    assert waiting.cancelled()
    with pytest.raises(OwnerClosed):
        owner.submit(lambda _: None)
    gate.set()
    assert under_way.result(timeout=10) == "finished"
    assert owner.close(10)
