"""The folders in which the local cluster keeps its programs and its data between runs.

They are the user's (XDG base directories). A home that cannot be written, as that of a service user or of a
container, stops nobody: the environment that runs this program belongs to the checkout, and the folders are
in it then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder", "state_folder"]


def cache_folder() -> Path:
    """Return the folder of programs: ``$XDG_CACHE_HOME/fluxqueue``, by default ``~/.cache/fluxqueue``."""
    return _user_folder("XDG_CACHE_HOME", ".cache") / "fluxqueue"


def state_folder() -> Path:
    """Return the folder of a cluster's data: ``$XDG_STATE_HOME/fluxqueue/local``,
    by default ``~/.local/state/fluxqueue/local``.
    """
    return _user_folder("XDG_STATE_HOME", ".local/state") / "fluxqueue" / "local"


def _user_folder(variable: str, default: str) -> Path:
    """Return the folder that the variable names, else the default in the user's home,
    else in the Python environment of this process.
    """
    named = os.environ.get(variable)
    if named and Path(named).is_absolute():
        return Path(named)
    folder = Path.home() / default
    return folder if _can_be_written(folder / "fluxqueue") else Path(sys.prefix) / default


def _can_be_written(folder: Path) -> bool:
    """Tell whether a folder can be written, or made if it is missing."""
    present = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return present.is_dir() and os.access(present, os.W_OK | os.X_OK)
