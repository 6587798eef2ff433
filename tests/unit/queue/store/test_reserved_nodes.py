"""Nodes of FluxReservations are tested on Postgres too: `tests/integration/queue/test_reserved_nodes.py`.
Here: the twin in memory.
"""

from __future__ import annotations

from support.memory_store import MemoryStore


async def test_choices_are_kept_replaced_and_forgotten() -> None:
    store = MemoryStore()
    epoch = await store.acquire_leadership("a")
    await store.reserve_nodes(epoch, {"uid-1": ("n0", "n1"), "uid-2": ()}, [])
    await store.reserve_nodes(epoch, {"uid-1": ["n2"]}, ["uid-2", "uid-3"])
    assert await store.reserved_nodes() == {"uid-1": ("n2",)}
