"""Kinds of match requests of flux-sched, and the answers of its calls, as values."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxqueue.fluxion.match.writers import VertexRow

__all__ = ["CompatInfo", "CompatMatch", "MatchRequestKind"]


class MatchRequestKind(enum.StrEnum):
    """Kinds of match requests of flux-sched; the first two are available over gRPC."""

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
        """Everything that was taken, in the order of R: children before their parent, the root last.
        Empty for satisfiability.
        """
        return self._list()

    def allocation(self) -> str:
        """Return R as JGF text: one line and a newline. It is written only on demand."""
        return self._write()


@dataclass(frozen=True, slots=True)
class CompatInfo:
    """State of a job as flux-sched reports it: mode ``ALLOCATED``, ``RESERVED`` or ``CANCELED``."""

    mode: str
    reserved: bool
    at: int
