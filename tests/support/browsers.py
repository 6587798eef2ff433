"""The browser of this machine."""

from __future__ import annotations

import os
import shutil

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of a Chromium: the one that FLUXQUEUE_CHROMIUM names, or one on PATH;
    None if there is none.
    """
    return os.environ.get("FLUXQUEUE_CHROMIUM") or next(
        (found for name in _PROGRAMS if (found := shutil.which(name))), None
    )
