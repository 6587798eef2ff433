"""So many releases are under way at once, and namespaces take turns."""

from __future__ import annotations

import asyncio

from fluxqueue.queue.release.release_slots import ReleaseSlots


class Bench:
    """Releases that end when the test says so."""

    def __init__(self, count: int) -> None:
        self.slots = ReleaseSlots(count)
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def begin(self, *names: str) -> None:
        """Begin releases, each of the namespace before the hyphen of its name."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._release(name))
            await asyncio.sleep(0)

    async def _release(self, name: str) -> None:
        async with self.slots.of(name.partition("-")[0]):
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, name: str) -> None:
        """End a release, and let the next one begin."""
        self._ends[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)


async def test_a_stranger_is_next_but_one_behind_a_crowd() -> None:
    bench = Bench(1)
    await bench.begin(*(f"crowd-{number}" for number in range(50)), "one-0", "one-1")
    for name in ("crowd-0", "crowd-1", "one-0", "crowd-2"):
        await bench.end(name)
    assert bench.begun == ["crowd-0", "crowd-1", "one-0", "crowd-2", "one-1"]
    for task in bench.tasks.values():
        task.cancel()


async def test_a_cancelled_release_takes_no_slot_with_it() -> None:
    bench = Bench(1)
    await bench.begin("a-0", "a-1", "a-2", "a-3")
    bench.tasks["a-1"].cancel()
    bench.tasks["a-0"].cancel()  # gives its slot up while the next one is about to be cancelled
    await asyncio.wait([bench.tasks["a-0"], bench.tasks["a-1"]])
    await asyncio.sleep(0)
    assert bench.begun == ["a-0", "a-2"]
    bench._ends["a-2"].set()
    await asyncio.sleep(0)
    bench.tasks["a-3"].cancel()  # it has its turn, and has not begun
    await asyncio.wait([bench.tasks["a-3"]])
    await bench.begin("b-0")
    assert bench.begun == ["a-0", "a-2", "b-0"]
    await bench.end("b-0")
