"""Fluxion job ids that objects carry: an allocation's annotation on pods, and a label on Jobs and their
templates.

Any user may write such a key. A text that this queue would not write counts as none; whether the object
belongs to that allocation is checked by the caller.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.queue.model.records import FluxionJobId

__all__ = ["jobid_of", "parse_jobid"]

_MOST_DIGITS = 18
"""A job id is a signed 64-bit integer."""


def parse_jobid(text: str | None) -> FluxionJobId | None:
    """Read a job id; None if the text is not one."""
    return FluxionJobId(int(text)) if text and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def jobid_of(meta: ObjectMeta) -> FluxionJobId | None:
    """Return the job id of the allocation that an object's metadata names; None if it names none."""
    return parse_jobid(meta.annotation(names.ALLOCATION_ANNOTATION) or meta.label(names.JOBID_LABEL))
