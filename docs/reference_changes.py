"""The reference of changes: what the leader runs after a change of an object, a row or a part,
from its table of subscriptions.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable

from markdown_tables import cell, code, table

from fluxqueue.queue.leadership.subscriptions import SOURCES

__all__ = ["changes_page"]

ROOMS = (
    "cluster",
    "intake",
    "scheduling",
    "release",
    "tracking",
    "requeue",
    "miniclusters",
    "status",
    "leadership",
)
"""Rooms of the queue, along the way of a Job."""
_HEAD = """# What runs after a change

Written by `docs/generate.py` from `queue/leadership/subscriptions.py`. A handler notes what changed, in
memory, and its part acts later in its own loop. The handlers of a source are called in this order. The views
that are parts of `Caches` were told before; they are in `queue/cluster`. How many handlers each room has, in
the order in which a Job passes the rooms ([architecture](../architecture.md)):
"""


def changes_page() -> str:
    """Return the page."""
    lines = [_HEAD]
    counts = [(source.name, Counter(map(_room, source.handlers))) for source in SOURCES]
    lines += table(
        ("change of", *ROOMS),
        ((cell(name), *(str(count[room] or "") for room in ROOMS)) for name, count in counts),
    )
    for source in SOURCES:
        lines += [
            f"## {source.name[0].upper()}{source.name[1:]}",
            "",
            f"Told by `{source.owner.__name__}`.",
            "",
        ]
        rows = (
            (code(each.__qualname__), cell(_about(each)), code(_module(each))) for each in source.handlers
        )
        lines += table(("what is called", "what for", "module"), rows)
    return "\n".join(lines).rstrip() + "\n"


def _module(handler: Callable[..., None]) -> str:
    return handler.__module__.removeprefix("fluxqueue.queue.").replace(".", "/") + ".py"


def _room(handler: Callable[..., None]) -> str:
    return _module(handler).split("/")[0]


def _about(handler: Callable[..., None]) -> str:
    return (inspect.getdoc(handler) or "").split("\n\n")[0]
