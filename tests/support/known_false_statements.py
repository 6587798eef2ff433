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
        "etaFirst",
        "the first estimate is kept beside the plan only, so it vanishes with the plan",
    ),
    KnownFalse(
        "reason",
        "work that is preempted is suspended by the queue, and for a moment counts as suspended by its user",
        said=r"UserSuspended",
    ),
    KnownFalse(
        "reason",
        "the reason names a FluxReservation that is over, or was deleted",
        said=r"Pending Reservation",
    ),
    KnownFalse(
        "reason",
        "the reason names the work that nodes were reserved for, until the work that waits is matched again",
        said=r"Pending BlockedByReservation",
    ),
    KnownFalse(
        "reason",
        "a gang is called Allocated, with a failed start, while some of its pods run",
        said=r"Allocated (StartTimeout|BindFailed)",
    ),
    KnownFalse(
        "failed start",
        "the same, in the words of the failed start",
    ),
    KnownFalse(
        "quota",
        "the text of a quota is that of the last match, also after pods that counted were deleted",
    ),
    KnownFalse(
        "reason",
        "the text of a time from when on work may begin is that of the last look at it",
        said=r"WaitingForBegin",
    ),
)
