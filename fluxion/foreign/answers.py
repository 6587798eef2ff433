"""What a foreign matcher answered: R, read as numbers of vertices on nodes.

Nothing in an answer is trusted. What cannot be read raises `InvalidAnswer`, and the work is not granted.
"""

from __future__ import annotations

import orjson

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.foreign.free_graphs import CLUSTER
from fluxqueue.fluxion.messages import MatchedAllocation

__all__ = ["InvalidAnswer", "taken_in"]


class InvalidAnswer(FluxionError):
    """An allocation of a foreign matcher cannot be used; the message says why."""


def taken_in(answer: MatchedAllocation) -> dict[str, dict[str, int]]:
    """Return node -> type -> number of vertices, in the order of R.

    Raises
    ------
    InvalidAnswer
        It begins later, or R is empty or is no JGF of the graph that was given.
    """
    if answer.reserved or answer.at != 0:
        raise InvalidAnswer(f"it begins {answer.at} s after the start of the graph, and was to begin now")
    try:
        vertices = orjson.loads(answer.allocation)["graph"]["nodes"]
        found = [
            (vertex["metadata"]["type"], vertex["metadata"]["paths"]["containment"]) for vertex in vertices
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidAnswer(f"its allocation is no JGF ({type(error).__name__})") from None
    taken: dict[str, dict[str, int]] = {}
    for kind, path in found:
        parts = str(path).split("/")
        if parts[:2] != ["", CLUSTER] or len(parts) > 4:
            raise InvalidAnswer(
                f"its allocation has the vertex {path!r:.80}, which the graph that it was given has not"
            )
        if len(parts) == 4:
            counts = taken.setdefault(parts[2], {})
            counts[str(kind)] = counts.get(str(kind), 0) + 1
    if not taken:
        raise InvalidAnswer("its allocation holds nothing")
    return taken
