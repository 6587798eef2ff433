"""Why an object cannot be matched as it is, and which of several problems its owner is shown.

A resolver returns a value even if it found a problem. The workload then gets a row with the problem as its
reason: an object is never dropped because something about it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.reasons import REASONS

__all__ = ["NO_PROBLEM", "Problem", "Resolved", "most_urgent"]

_T = TypeVar("_T")

_LONGEST_MESSAGE = 1_000
_URGENCY = {reason: facts.urgency for reason, facts in REASONS.items() if facts.urgency is not None}


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason, with a message that names the object, the field and the remedy."""

    reason: Reason
    message: str


NO_PROBLEM = Problem(Reason.NONE, "")


@dataclass(frozen=True, slots=True)
class Resolved(Generic[_T]):
    """A value, and the problems with what it was read from."""

    value: _T
    problems: tuple[Problem, ...] = ()


def most_urgent(problems: Iterable[Problem]) -> Problem:
    """Return the problem to show, its message cut to a length that fits a status;
    `NO_PROBLEM` if there is none.
    """
    problem = min(problems, key=lambda each: _URGENCY[each.reason], default=NO_PROBLEM)
    if len(problem.message) <= _LONGEST_MESSAGE:
        return problem
    return Problem(problem.reason, f"{problem.message[:_LONGEST_MESSAGE]}...")
