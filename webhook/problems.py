"""Problems of an object of our own kinds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ObjectProblems"]


@dataclass(frozen=True, slots=True)
class ObjectProblems:
    """Sentences that name a field and a remedy. An object without errors is accepted.

    Attributes
    ----------
    errors
        Why the object is refused.
    warnings
        What is accepted but may surprise its author; kubectl shows these sentences.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
