"""A part of the leader that fails is started again, and one that may not go on ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from fluxqueue.queue.leadership.supervision import keep_running, try_step
from fluxqueue.queue.metrics import CONTROLLER_RESTARTS
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader, Unstorable


class Part:
    """A loop that fails with these errors, one after the other, and then ends by itself."""

    def __init__(self, *errors: Exception) -> None:
        self.done: list[str] = []
        self._errors: Iterator[Exception] = iter(errors)

    async def run(self) -> None:
        self.done.append("run")
        for error in self._errors:
            raise error

    def resync(self) -> None:
        self.done.append("resync")


def restarts(name: str) -> float:
    return float(CONTROLLER_RESTARTS.labels(name)._value.get())


async def test_a_part_that_fails_compares_everything_and_is_started_again() -> None:
    part, before = Part(KeyError("a"), ExceptionGroup("", [ValueError("b")])), restarts("Part")
    with capture_logs() as logged:
        await keep_running("Part", part.run, part.resync, first_pause_s=0)
    assert part.done == ["run", "resync", "run", "resync", "run"]
    assert restarts("Part") == before + 2
    assert [(each["event"], each["controller"], each["error"]) for each in logged] == [
        ("controller.restarted", "Part", "KeyError: 'a'"),
        ("controller.restarted", "Part", "ValueError: b"),
    ]
    assert all(each["exc_info"] for each in logged)


async def test_an_expected_error_is_told_without_its_stack() -> None:
    part = Part(DatabaseUnavailable("Postgres went away"))
    with capture_logs() as logged:
        await keep_running("Part", part.run, first_pause_s=0)
    assert [each["exc_info"] for each in logged] == [None]


@pytest.mark.parametrize(
    "error", [StaleLeader("7"), ExceptionGroup("", [KeyError(), ExceptionGroup("", [StaleLeader("7")])])]
)
async def test_a_stale_leader_ends_the_process(error: Exception) -> None:
    part = Part(error)
    with pytest.raises(StaleLeader):
        await keep_running("Part", part.run, part.resync, first_pause_s=0)
    assert part.done == ["run"]


async def test_the_pause_doubles_while_it_keeps_failing() -> None:
    part = Part(*(KeyError() for _ in range(4)))
    with capture_logs() as logged:
        await keep_running("Part", part.run, first_pause_s=0.001)
    assert [each["retry_s"] for each in logged] == [0.001, 0.002, 0.004, 0.008]


async def test_it_ends_when_it_is_cancelled() -> None:
    running = asyncio.create_task(keep_running("Part", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_leader_starts_without_a_step_that_fails() -> None:
    part, before = Part(Unstorable("index row size 3096 exceeds 2704")), restarts("Part")
    with capture_logs() as logged:
        await try_step("Part", part.run)
    assert (part.done, restarts("Part")) == (["run"], before + 1)
    text = "Unstorable: index row size 3096 exceeds 2704"
    assert [(each["event"], each["step"], each["error"]) for each in logged] == [
        ("start.step_failed", "Part", text)
    ]


@pytest.mark.parametrize("error", [StaleLeader("7"), DatabaseUnavailable("Postgres went away")])
async def test_a_leader_does_not_start_without_its_tables(error: Exception) -> None:
    with pytest.raises(type(error)):
        await try_step("Part", Part(error).run)
