"""Amounts and names as people type them, with the sentence for those that cannot be meant.

Kubernetes accepts ``memory: 512``, which is 512 bytes, and ``memory: 512m``, which is half a byte. A
container with either is killed when it starts. It refuses a name with capitals, but only after the request,
in a sentence about regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from fluxqueue.api.names import DEFAULT_QUEUE
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.texts import did_you_mean

__all__ = [
    "amount_problem",
    "cores_problem",
    "meant_queue",
    "memory_problem",
    "name_problem",
    "queue_problem",
]

_SHOWN: Final = 60
_MOST_NAMED: Final = 20
_LEAST_MEMORY: Final = 2**20
_MOST_CORES: Final = 1_000_000
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_LONGEST_NAME: Final = 63
"""The Job controller makes a label of the name of a Job, and names of pods."""


def amount_problem(amount: str | float) -> str | None:
    """Return why an amount cannot be read, with examples; None if it can."""
    try:
        parse_quantity(amount)
    except InvalidQuantity:
        return f"{str(amount)[:_SHOWN]!r} is no amount: write 4, 500m or 16Gi"
    return None


def memory_problem(amount: str | float) -> str | None:
    """Return why memory cannot be meant: it cannot be read, or is less than 1Mi; None if it can."""
    if (problem := amount_problem(amount)) is not None:
        return problem
    size = parse_quantity(amount)
    if not 0 < size < _LEAST_MEMORY:
        return None
    number = re.match(r"[0-9.]+", str(amount))
    written = number[0] if number else "1"
    return (
        f"{str(amount)[:_SHOWN]!r} of memory is less than 1Mi, in which nothing runs: "
        f"write {written}Mi or {written}Gi"
    )


def cores_problem(amount: str | float) -> str | None:
    """Return why a number of cores cannot be meant: it cannot be read, or no node has so many;
    None if it can.
    """
    if (problem := amount_problem(amount)) is not None:
        return problem
    if parse_quantity(amount) <= _MOST_CORES:
        return None
    return f"{str(amount)[:_SHOWN]!r} are more cores than any node has: write 4 or 500m"


def name_problem(name: str, longest: int = _LONGEST_NAME) -> str | None:
    """Return why no object can have this name, with one that it can have; None if it can.
    The default length is that of a Job.
    """
    if len(name) <= longest and _NAME.fullmatch(name):
        return None
    if not name:
        return "an empty text is no name: write lower-case letters, digits, '-' and '.'"
    better = _NOT_IN_NAMES.sub("-", name.lower()).strip("-.")[:longest].rstrip("-.")
    instead = (
        f"write {better}" if _NAME.fullmatch(better) else "write lower-case letters, digits, '-' and '.'"
    )
    what = (
        f"is longer than {longest} characters" if len(name) > longest else "is no name that Kubernetes takes"
    )
    return f"{name[:_SHOWN]!r} {what}: {instead}"


def queue_problem(queue: str, known: Collection[str] | None) -> str | None:
    """Return why no work can be in a queue of this name; None if it can.

    Work in a queue that does not exist waits for ever, with a reason that nobody reads until then. So whoever
    takes the name of a queue from a person asks here: the plugin, the client, the dashboard.

    Parameters
    ----------
    queue
        As it was typed.
    known
        The FluxQueues by name; None if the person may not know them. ``default`` is there without one.
    """
    if not queue:
        return "the name of the queue is empty: kubectl fluxqueue queues lists the queues"
    if known is None or queue == DEFAULT_QUEUE or queue in known:
        return None
    shown = sorted({DEFAULT_QUEUE, *known})
    more = ", ..." if len(shown) > _MOST_NAMED else ""
    return (
        f"there is no queue {queue[:_SHOWN]!r}: {meant_queue(queue, known)}there are "
        f"{', '.join(shown[:_MOST_NAMED])}{more}"
    )


def meant_queue(queue: str, known: Collection[str]) -> str:
    """Return "did you mean NAME? " for a name that no queue has; empty if no name is close."""
    return did_you_mean(queue, sorted({DEFAULT_QUEUE, *known}))
