"""What to do with a failure nobody expected: one sentence for the person, the traceback where it can be found.

A file per failure in the user's state folder, because a screen full of frames hides the one line that matters; a folder that cannot
be written (a container with a read-only root) must not lose the traceback, so then it is shown after all.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

__all__ = ["crash_folder", "report"]


def crash_folder() -> Path:
    """Where tracebacks are kept: ``$XDG_STATE_HOME/fluxqueue``, by default below ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "fluxqueue"


def report(program: str, error: BaseException, *, debug: bool, log_is_stderr: bool) -> None:
    """Tell of an unexpected failure on standard error.

    Parameters
    ----------
    program
        The command that failed as it was typed (``fluxqueue local``), for the sentence and the file's name.
    error
        What it raised.
    debug
        Show the traceback on the screen.
    log_is_stderr
        The program's log is its standard error: the traceback belongs there.
    """
    text = "".join(traceback.format_exception(error))
    if debug or log_is_stderr:
        sys.stderr.write(text)
        where = "the traceback stands above"
    else:
        where = _keep(program, text)
    sentence = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
    print(f"{program} failed unexpectedly: {sentence} ({where})", file=sys.stderr)


def _keep(program: str, text: str) -> str:
    path = crash_folder() / f"{program.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError:
        sys.stderr.write(text)
        return "the traceback stands above; it could not be written to a file"
    return f"traceback in {path}"
