"""A queue of keys, with the semantics of client-go's workqueue (skeleton: signatures are final, bodies follow)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["K", "ShutDown", "WorkQueue", "run_workers"]

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue is shut down and empty."""


class WorkQueue(Generic[K]):
    """Keys waiting to be worked on."""

    def __init__(self, name: str, *, base_delay_s: float = 0.005, max_delay_s: float = 60.0) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def depth(self) -> int:
        """How many keys are ready and not being worked on."""
        raise NotImplementedError

    def add(self, key: K) -> None:
        """Ask for the key to be worked on."""
        raise NotImplementedError

    def add_after(self, key: K, delay_s: float) -> None:
        """The same, later; of several the earliest counts."""
        raise NotImplementedError

    def add_rate_limited(self, key: K) -> None:
        """The same after 5 ms * 2^n, n being the failures since :meth:`forget`."""
        raise NotImplementedError

    def forget(self, key: K) -> None:
        """The key is fine again: its next delay starts from the bottom."""
        raise NotImplementedError

    def num_requeues(self, key: K) -> int:
        """Failures since the last :meth:`forget`."""
        raise NotImplementedError

    async def get(self) -> K:
        """The next key; it must be given to :meth:`done` afterwards."""
        raise NotImplementedError

    def done(self, key: K) -> None:
        """The key was worked on; if it was added meanwhile, it waits again."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """Take no more keys; :meth:`get` hands out the rest, then raises :class:`ShutDown`."""
        raise NotImplementedError


async def run_workers(queue: WorkQueue[K], workers: int, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
    """Work on the queue until it is shut down; ``reconcile`` may return seconds after which it wants the key again."""
    raise NotImplementedError
