"""A program ends on SIGTERM and SIGINT only after its work has stopped."""

from __future__ import annotations

import asyncio
import signal

import pytest

from fluxqueue.api.termination import leaf_errors, on_termination, run_until_terminated


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_cancels_the_work_and_waits_until_it_has_stopped(number: signal.Signals) -> None:
    events: list[str] = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_soon(signal.raise_signal, number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("stopped")

    async with asyncio.timeout(60):
        await run_until_terminated(work())
    assert events == ["stopped"]


async def test_an_error_of_the_work_propagates() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until_terminated(work())


async def test_each_signal_calls_back_and_the_process_goes_on() -> None:
    received = asyncio.Event()
    on_termination(received.set)
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        await received.wait()


def test_errors_of_nested_groups_are_listed_in_order() -> None:
    first, second, third = ValueError("1"), KeyError("2"), OSError("3")
    group = BaseExceptionGroup("outer", [first, BaseExceptionGroup("inner", [second, third])])
    assert leaf_errors(group) == [first, second, third]
    assert leaf_errors(None) == []
