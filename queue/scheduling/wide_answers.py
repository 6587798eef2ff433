"""Which requests got more nodes from the matcher than a limit allows them at all.

How many nodes a request gets is known only from the answer. An answer that no end of other work brings under the limit is remembered for
some minutes: else the same work would be matched in vain in each cycle, and work behind it would never be looked at. Afterwards it is
tried again, since other nodes may be free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from fluxqueue.queue.scheduling.limit_scopes import LimitScope, OverLimit, ScopeKey

__all__ = ["WideAnswers"]

_AGAIN = timedelta(minutes=5)
_MOST_KEPT = 1_024
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class WideAnswers:
    """Answers with more nodes than a limit allows, of this cycle and of those before.

    Attributes
    ----------
    now
        Of the cycle.
    """

    now: datetime = _LONG_AGO
    _found: dict[tuple[ScopeKey, str], tuple[int, datetime]] = field(default_factory=dict)

    def begin_cycle(self, now: datetime) -> None:
        """Forget what was found too long ago."""
        self.now = now
        self._found = {key: each for key, each in self._found.items() if now < each[1] + _AGAIN}

    def note(self, scope: LimitScope, shape: str, nodes: int) -> None:
        """Remember that a request of this shape got so many nodes."""
        if len(self._found) >= _MOST_KEPT:
            del self._found[next(iter(self._found))]
        self._found[scope.key, shape] = nodes, self.now

    def refusal(self, scope: LimitScope, shape: str) -> OverLimit | None:
        """Return why a request of this shape is not matched again for now; None if it is."""
        found = self._found.get((scope.key, shape))
        return None if found is None else scope.too_wide(found[0])

    def shapes(self) -> Iterator[tuple[ScopeKey, str]]:
        """Yield the shapes of the requests, with their limits."""
        yield from self._found

    def found_for(self, key: ScopeKey) -> bool:
        """True if this cycle found an answer that is over this limit."""
        return any(found_key == key and at == self.now for (found_key, _), (_, at) in self._found.items())
