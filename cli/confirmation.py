"""The question before a command changes many objects that nobody named.

A terminal is asked. A script has to say ``--yes``: it would hang on a question, or do by accident what nobody
wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from fluxqueue.api.formatting import some_of
from fluxqueue.cli.api_client import ClusterError

__all__ = ["confirmed"]

_NAMED = 5


def confirmed(
    doing: str, what: Sequence[str], *, yes: bool, asked: TextIO | None = None, answers: TextIO | None = None
) -> bool:
    """Return true if a change may be made.

    Parameters
    ----------
    doing
        What is done, such as ``cancel``.
    what
        The objects. One alone needs no question.
    yes
        The command line says yes.
    asked, answers
        Where the question is written, and where the answer comes from: by default standard error and standard
        input.

    Raises
    ------
    ClusterError
        Nobody can answer.
    """
    if yes or len(what) < 2:
        return True
    error, source = asked or sys.stderr, answers or sys.stdin
    if source is None or not source.isatty():  # None: it is closed
        raise ClusterError(
            f"error: this would {doing} {len(what)} workloads: add --yes, since nobody can be asked here"
        )
    error.write(f"This will {doing} {len(what)} workloads: {some_of(what, _NAMED)}.\nContinue? [y/N] ")
    error.flush()
    return source.readline().strip().lower() in ("y", "yes")
