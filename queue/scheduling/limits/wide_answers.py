"""Which requests got more nodes from the matcher than a limit allows.

How many nodes a request gets is known only from the answer. So an answer over a limit is remembered: else the
same work would be matched in vain in each cycle, and work behind it would never be looked at. While as many
nodes as it needs are not free of the limit, the request is not matched; after a while it is, since other
nodes may be free: after some minutes if the answer alone was over the limit, after some seconds if it was so
together with other work, on nodes of which the next answer may have more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.scheduling.limits.limit_scopes import LimitScope, OverLimit, ScopeKey, ScopeUse
from fluxqueue.queue.scheduling.limits.limit_stops import rows_under
from fluxqueue.queue.scheduling.policies.backlog import Backlog

__all__ = ["WideAnswers"]

_AGAIN_ALONE = timedelta(minutes=5)
_AGAIN = timedelta(seconds=15)
_MOST_KEPT = 1_024
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The nodes of an answer, how many of them the work under the limit did not use yet,
    and when it was given.
    """

    nodes: int
    further: int
    at: datetime
    until: datetime


@dataclass(slots=True)
class WideAnswers:
    """Answers with more nodes than a limit allows, of this cycle and of those before.

    Attributes
    ----------
    now
        Of the cycle.
    """

    now: datetime = _LONG_AGO
    _found: dict[tuple[ScopeKey, str], _Answer] = field(default_factory=dict)

    def begin_cycle(self, now: datetime) -> None:
        """Forget what was found too long ago."""
        self.now = now
        self._found = {key: each for key, each in self._found.items() if now < each.until}

    def note(self, scope: LimitScope, use: ScopeUse, shape: str, nodes: set[str]) -> None:
        """Remember that a request of this shape got these nodes."""
        if len(self._found) >= _MOST_KEPT:
            del self._found[next(iter(self._found))]
        again = _AGAIN if scope.too_wide(len(nodes)) is None else _AGAIN_ALONE
        self._found[scope.key, shape] = _Answer(
            len(nodes), len(nodes - use.nodes.keys()), self.now, self.now + again
        )

    def refusal(self, scope: LimitScope, use: ScopeUse, shape: str) -> OverLimit | None:
        """Return why a request of this shape is not matched again for now; None if it is."""
        found = self._found.get((scope.key, shape))
        return None if found is None else scope.too_wide(found.nodes) or scope.over_nodes(use, found.further)

    def close(
        self,
        mask: npt.NDArray[np.bool_],
        backlog: Backlog,
        accounts: AccountTree,
        scope_of: Callable[[ScopeKey], LimitScope | None],
        use_of: Callable[[LimitScope], ScopeUse],
    ) -> None:
        """Clear the rows of a backlog's mask whose requests are not matched again for now.

        Parameters
        ----------
        accounts
            All accounts.
        scope_of
            Returns the limits with a key that hold for work of the queue; None if there are none any more.
        use_of
            Returns what is used of them.
        """
        closed: dict[ScopeKey, list[int]] = {}
        for key, shape in self._found:
            number = backlog.shape_number(shape)
            scope = scope_of(key) if number is not None else None
            if (
                number is not None
                and scope is not None
                and self.refusal(scope, use_of(scope), shape) is not None
            ):
                closed.setdefault(key, []).append(number)
        for key, shapes in closed.items():
            mask &= ~(np.isin(backlog.shapes, shapes) & rows_under(key, backlog, accounts))

    def found_for(self, key: ScopeKey) -> bool:
        """True if this cycle found an answer that is over this limit."""
        return any(found_key == key and each.at == self.now for (found_key, _), each in self._found.items())
