"""How far some workloads are, as counts and as one line that a terminal or a notebook shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluxqueue.api.fluxjobs import LIVE, State
from fluxqueue.client.waiting import Timeout, Waiting, deadline_of

if TYPE_CHECKING:
    from fluxqueue.client.statuses import WorkStatus

__all__ = ["Progress", "progress_of"]


@dataclass(frozen=True)
class Progress:
    """How many of some workloads wait, run and have ended.

    Attributes
    ----------
    total, waiting, running
        All; those without nodes; those with nodes.
    completed, failed, cancelled
        How the others ended.
    """

    total: int
    waiting: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many have ended, in any way."""
        return self.completed + self.failed + self.cancelled

    def __str__(self) -> str:
        counts = {
            "running": self.running,
            "waiting": self.waiting,
            "failed": self.failed,
            "cancelled": self.cancelled,
        }
        return ", ".join(
            [
                f"{self.ended} of {self.total} ended",
                *(f"{count} {what}" for what, count in counts.items() if count),
            ]
        )

    def _repr_html_(self) -> str:
        return f'<progress value="{self.ended}" max="{max(self.total, 1)}"></progress> {self}'


async def progress_of(works: Sequence[Waiting], timeout: Timeout) -> AsyncGenerator[Progress]:
    """Yield the progress as soon as the state of each is known, and whenever it changes,
    until all have ended.
    """
    deadline, told = deadline_of(timeout), asyncio.Queue[tuple[int, State] | Exception]()

    async def follow(number: int, work: Waiting) -> None:
        def seen(status: WorkStatus) -> bool:
            told.put_nowait((number, status.state))
            return status.ended

        try:
            await work.until(seen, deadline)
        except Exception as error:
            told.put_nowait(error)

    follows = [asyncio.ensure_future(follow(number, work)) for number, work in enumerate(works)]
    states: dict[int, State] = {}
    shown = None
    try:
        while shown is None or shown.ended < shown.total:
            if len(states) == len(works) and (now := _counted(states.values())) != shown:
                shown = now
                yield now
                continue
            first = await told.get()
            for each in (first, *(told.get_nowait() for _ in range(told.qsize()))):
                if isinstance(each, Exception):
                    raise each
                states[each[0]] = each[1]
    finally:
        for follower in follows:
            follower.cancel()
        await asyncio.gather(*follows, return_exceptions=True)


def _counted(states: Collection[State]) -> Progress:
    counts = Counter(states)
    return Progress(
        total=len(states),
        waiting=counts[State.PENDING],
        running=sum(counts[state] for state in LIVE),
        completed=counts[State.COMPLETED],
        failed=counts[State.FAILED],
        cancelled=counts[State.CANCELLED],
    )
