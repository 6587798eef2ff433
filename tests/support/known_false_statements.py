"""False claims that are known: each with the sentence why, until it is repaired. Whoever repairs one removes its entry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from support.statement_claims import False_

__all__ = ["KNOWN_FALSE", "KnownFalse"]


@dataclass(frozen=True)
class KnownFalse:
    """Statements that are false as is known: of one claim, in these words (a pattern), for this cause (a pattern)."""

    claim: str
    why: str
    said: str = ""
    cause: str = ""

    def covers(self, found: False_) -> bool:
        """True if this is one of them."""
        return found.claim == self.claim and bool(re.search(self.said, found.said)) and bool(re.search(self.cause, found.why))


KNOWN_FALSE: tuple[KnownFalse, ...] = (
    KnownFalse(
        "reason",
        "the reason named a FluxReservation that is over, or was deleted: repaired, but no end-to-end test has passed without this yet",
        said=r"Pending Reservation",
    ),
)
