"""Remove from an environment what no program of an image reads: test suites of libraries, headers, type stubs
and example data.

Bytecode stays. The root of a container is read-only, so that a program without it would compile all its
modules at every start.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

FOLDERS = {"tests", "test", "include"}
SUFFIXES = {".pyi", ".pyx", ".pxd", ".h", ".c", ".cpp", ".hpp", ".a"}


def main() -> int:
    """Trim the environment that the argument names, and report its size."""
    root = Path(sys.argv[1])
    packages = next(root.glob("lib/python3*/site-packages"))
    before = size_bytes(root)
    for folder in sorted(path for path in packages.rglob("*") if path.is_dir() and path.name in FOLDERS):
        if folder.is_dir() and folder.parent != packages:
            shutil.rmtree(folder)
    for path in packages.rglob("*"):
        if path.is_file() and path.suffix in SUFFIXES:
            path.unlink()
    print(f"{root}: {before / 1e6:.0f} MB, trimmed to {size_bytes(root) / 1e6:.0f} MB")
    return 0


def size_bytes(root: Path) -> int:
    """Return the size of all files, links not followed."""
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    sys.exit(main())
