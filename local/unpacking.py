"""Unpacks tar archives on every supported Python.

Python 3.11.4 and newer can refuse members that would be written outside the folder. Older ones, such as that
of Debian 12, cannot; what we unpack was compared with a digest or made by ourselves.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

__all__ = ["unpack"]


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an open archive into a folder, with the filter ``data`` where this Python has it."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202  (see above)
