"""Standard output and error, whatever the caller made of them:
closed, a pipe whose reader has ended, another encoding.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

__all__ = ["drop_output", "ready_streams"]


def ready_streams() -> None:
    """Make the streams usable: a closed one goes nowhere, and what its encoding does not have is replaced."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  until the program ends
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Write what is left of standard output nowhere:
    the interpreter must not complain about it when it ends.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
