"""What is to be said of an object of our own kinds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Opinion"]


@dataclass(frozen=True, slots=True)
class Opinion:
    """Sentences that name a field and a remedy; an object without errors is taken.

    Attributes
    ----------
    errors
        Why it cannot be meant like this.
    warnings
        What is allowed, but will surprise whoever wrote it; kubectl shows them.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
