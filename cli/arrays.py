"""Job arrays: many tasks that differ by a number, as one Indexed Job.

``0-99%10`` is Slurm's form: a hundred tasks, ten at once. Each task is a pod, and its number is
``JOB_COMPLETION_INDEX``. With a limit, as many pods as it says run at any time; without one the Job starts
with as few pods as there is room for, and grows (`fluxqueue/min-pods`).
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

__all__ = ["TaskArray", "read_array"]

_FORM = re.compile(r"(?P<first>[0-9]{1,6})-(?P<last>[0-9]{1,6})(?:%(?P<limit>[0-9]{1,6}))?")
_MOST = 100_000
"""Completions of an Indexed Job with any parallelism, by the API server."""


@dataclass(frozen=True)
class TaskArray:
    """How many tasks there are, and how many run at once; None: as many as there is room for."""

    tasks: int
    at_once: int | None = None


def read_array(text: str) -> TaskArray:
    """Read a range of task numbers.

    Raises
    ------
    argparse.ArgumentTypeError
        It is none, or none that an Indexed Job can have.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no array: write 0-99, or 0-99%10 for ten at once; "
            "lists and steps are not offered"
        )
    first, last = int(form["first"]), int(form["last"])
    limit = None if form["limit"] is None else int(form["limit"])
    if first:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r}: tasks are numbered from 0: write 0-{max(last - first, 0)}, "
            f"and add {first} to JOB_COMPLETION_INDEX"
        )
    if limit == 0 or last >= _MOST:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r}: an array has 1 to {_MOST} tasks, of which at least one runs at once"
        )
    return TaskArray(last + 1, None if limit is None or limit > last else limit)
