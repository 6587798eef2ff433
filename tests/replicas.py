"""Which replica of the queue leads, asked of the replicas themselves."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from fluxqueue.local.inprocess import InProcessPlane

__all__ = ["asked", "leader", "matcher", "queues"]


def queues(plane: InProcessPlane) -> list[str]:
    """The queue programs of a plane, first replica first."""
    return [name for name in plane.programs if name == "queue" or name.startswith("queue-")]


def asked(plane: InProcessPlane, name: str) -> dict[str, Any]:
    """What a queue says of itself: ``ready``, ``role`` and ``missing``; one that does not answer is missing itself."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{plane.programs[name].port}/readyz", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except OSError as error:
        return {"ready": False, "role": "", "missing": {"queue": str(error)}}


def leader(plane: InProcessPlane) -> str | None:
    """The queue that leads; None while nobody does, or while a former leader that is paused cannot be told from one that leads."""
    leading = [name for name in queues(plane) if plane.programs[name].process.running and asked(plane, name)["role"] == "leader"]
    return leading[0] if len(leading) == 1 else None


def matcher(plane: InProcessPlane) -> str | None:
    """The matcher beside the queue that leads; with a single queue, its own."""
    names = queues(plane)
    leading = leader(plane) if len(names) > 1 else names[0]
    return leading.replace("queue", "fluxion") if leading else None
