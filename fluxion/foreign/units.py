"""What a foreign matcher counts, and in which units.

A vertex is the smallest piece that flux-sched allocates, and a Go service reads messages of at most 4 MiB. So
a node is described to it as the Go queue describes nodes: whole cores, pieces of memory of a GiB, and devices
one by one. What is free is rounded down, what is asked for is rounded up. Everything else (pod slots,
ephemeral storage, huge pages) is counted by the queue alone, which checks every answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fluxqueue.api.graphnames import CPU, MEMORY, POD_SLOTS

__all__ = ["CORE", "ForeignUnits"]

CORE: Final = "core"
"""flux-sched's name of cores; its default prune filters count this type."""

_MOST_PIECES: Final = 256
"""A pool with more pieces than this on a node holds no devices, and would fill the message."""
_OURS_ALONE: Final = (POD_SLOTS, "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class ForeignUnits:
    """Sizes of the vertices of a foreign graph.

    Attributes
    ----------
    cpu_m
        Millicores of a core vertex.
    memory_mib
        MiB of a memory vertex.
    """

    cpu_m: int = 1_000
    memory_mib: int = 1_024

    def type_of(self, kind: str, amount: int) -> str:
        """Return the foreign type of a type of ours of which a node has this amount;
        empty if the foreign matcher does not count it.
        """
        if kind == CPU:
            return CORE
        if kind == MEMORY:
            return MEMORY
        return "" if kind in _OURS_ALONE or kind.startswith("hugepages-") or amount > _MOST_PIECES else kind

    def size_of(self, foreign_type: str) -> int:
        """Return how much of ours one vertex of a foreign type is."""
        return self.cpu_m if foreign_type == CORE else self.memory_mib if foreign_type == MEMORY else 1

    def offered(self, free: Mapping[str, int]) -> dict[str, int]:
        """Return the number of whole vertices of each foreign type in what is free on a node."""
        counts = ((self.type_of(kind, amount), amount) for kind, amount in sorted(free.items()))
        return {
            kind: count for kind, amount in counts if kind and (count := amount // self.size_of(kind)) > 0
        }

    def wanted(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return the number of vertices of each foreign type that a request takes:
        at least one core, as the Go queue asks for.
        """
        kinds = ((self.type_of(kind, amount), amount) for kind, amount in sorted(amounts.items()))
        return {CORE: 1} | {
            kind: -(-amount // self.size_of(kind)) for kind, amount in kinds if kind and amount > 0
        }
