"""Reports of unexpected failures: one sentence for the person, and the traceback in a file.

Each traceback is written to a file in the user's state folder, because a screen full of frames hides the
important line. If the folder is not writable (a container with a read-only root), the traceback is printed,
so that it is not lost.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

__all__ = ["crash_folder", "report"]


def crash_folder() -> Path:
    """Return the folder of tracebacks: ``$XDG_STATE_HOME/fluxqueue``,
    by default ``~/.local/state/fluxqueue``.
    """
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "fluxqueue"


def report(program: str, error: BaseException, *, debug: bool, log_is_stderr: bool) -> None:
    """Report an unexpected failure on standard error.

    Parameters
    ----------
    program
        The failed command as it was typed (``fluxqueue local``), for the message and the name of the file.
    error
        The exception.
    debug
        Print the traceback.
    log_is_stderr
        True if the program logs to standard error; then the traceback is printed there.
    """
    text = "".join(traceback.format_exception(error))
    if debug or log_is_stderr:
        sys.stderr.write(text)
        where = "the traceback is above"
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
        return "the traceback is above; it could not be written to a file"
    return f"traceback in {path}"
