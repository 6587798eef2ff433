"""Fetches the script that draws the site's pictures, once, as the package `mermaid` by npm.

Without npm, or without a network, the site is built all the same; browsers then load the script from where
the theme says.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

__all__ = ["fetch", "main"]

PACKAGE = "mermaid@11.17.2"
SHA512 = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
MEMBER = "package/dist/mermaid.min.js"
TARGET = Path(__file__).resolve().parents[1] / "build" / "mermaid" / "mermaid.min.js"
_TIMEOUT_S = 120


def main() -> int:
    """Fetch the script if it is missing; says why if it cannot be."""
    problem = "" if TARGET.is_file() else fetch(TARGET)
    if problem:
        print(f"pictures in Mermaid are drawn by a script from elsewhere: {problem}", file=sys.stderr)
    return 0


def fetch(target: Path) -> str:
    """Put the script there, whole or not at all; returns what went wrong, or nothing."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not on PATH"
    with tempfile.TemporaryDirectory() as temporary:
        command = [npm, "pack", "--silent", PACKAGE]
        try:
            done = subprocess.run(
                command, cwd=temporary, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"npm did not fetch {PACKAGE} within {_TIMEOUT_S} s"
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            return f"npm could not fetch {PACKAGE}"
        digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if digest != SHA512:
            return f"{PACKAGE} is not the archive that was expected: its SHA-512 is {digest}"
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(MEMBER)
            assert member is not None
            content = member.read()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_bytes(content)
    part.replace(target)
    return ""


if __name__ == "__main__":
    sys.exit(main())
