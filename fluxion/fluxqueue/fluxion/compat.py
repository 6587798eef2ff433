"""The three calls of the original, as values: what can be asked of a match, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["CompatInfo", "CompatMatch", "MatchRequestKind", "VertexRow"]

VertexRow = tuple[str, int, bool]
"""Containment path, size, exclusive."""


class MatchRequestKind(enum.StrEnum):
    """What the original's match can be asked to do; gRPC reaches the first two."""

    ALLOCATE = "allocate"
    ALLOCATE_ORELSE_RESERVE = "allocate_orelse_reserve"
    SATISFIABILITY = "satisfiability"
    ALLOCATE_WITH_SATISFIABILITY = "allocate_with_satisfiability"
    WITHOUT_ALLOCATING = "without_allocating"
    WITHOUT_ALLOCATING_FUTURE = "without_allocating_future"


@dataclass(frozen=True, slots=True)
class CompatMatch:
    """A match that succeeded.

    Attributes
    ----------
    jobid
        0 for requests that allocate nothing.
    reserved
        True exactly if ``at`` is not 0.
    at
        Start, in seconds from the start of the graph.
    """

    jobid: int
    reserved: bool
    at: int
    _list: Callable[[], tuple[VertexRow, ...]] = field(repr=False, compare=False)
    _write: Callable[[], str] = field(repr=False, compare=False)

    @property
    def vertices(self) -> tuple[VertexRow, ...]:
        """What was taken, in the order of emission: children before their parent, the root last. Empty for satisfiability."""
        return self._list()

    def allocation(self) -> str:
        """R as JGF text: one line and a newline. Written only when asked for."""
        return self._write()


@dataclass(frozen=True, slots=True)
class CompatInfo:
    """How a job of the original's calls stands: mode ``ALLOCATED``, ``RESERVED`` or ``CANCELED``."""

    mode: str
    reserved: bool
    at: int
