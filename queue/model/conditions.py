"""Conditions of an object's status, with the time at which each changed last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from fluxqueue.api.metadata import ObjectCondition

__all__ = ["dated"]


def dated(
    wanted: Iterable[ObjectCondition], present: Iterable[ObjectCondition] | None, now: datetime
) -> list[ObjectCondition]:
    """Return the conditions, each with the time at which its status changed last.

    Parameters
    ----------
    wanted
        What the object should show. Their times are not read.
    present
        What it shows; None if it has no conditions yet.
    now
        In UTC; the time of a status that changes.
    """
    before = {condition.type: condition for condition in present or ()}
    return [
        msgspec.structs.replace(each, last_transition_time=_since(each, before.get(each.type), now))
        for each in wanted
    ]


def _since(condition: ObjectCondition, before: ObjectCondition | None, now: datetime) -> str | None:
    if before is not None and before.status == condition.status:
        return before.last_transition_time
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
