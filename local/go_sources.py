"""Which folders of downloaded Go modules a build needs;
the others, a third of them, are deleted before it begins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

__all__ = ["delete_unused"]


def delete_unused(modules: Path, packages: Collection[Path], kept: Collection[Path] = ()) -> None:
    """Delete what no package needs: folders without a needed package, and tests.

    A package may embed files of any folder below its own, so folders below a needed package stay.

    Parameters
    ----------
    modules
        The folder that ``GOMODCACHE`` names. Its downloads stay.
    packages
        Folders of the packages that are compiled; others than those of modules do not matter.
    kept
        Folders of modules that stay as they are.
    """
    needed = {folder for folder in packages if folder.is_relative_to(modules)}
    if not needed:
        return  # nothing was listed, which is no reason to delete all
    above = {parent for folder in needed for parent in folder.parents}
    open_ = [modules]
    while open_:
        for entry in os.scandir(open_.pop()):
            folder = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False) or folder in kept or folder == modules / "cache":
                continue
            if folder in needed:
                for test in folder.rglob("*_test.go"):
                    test.unlink()
            elif folder in above or any(folder in each.parents for each in kept):
                open_.append(folder)
            else:
                shutil.rmtree(folder)
