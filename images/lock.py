"""Write the requirements of the images with the digest of every file that may be installed:
``make requirements``.

Each ``NAME.in`` lists distributions; ``NAME.txt`` gets them and all that they require, in the versions of
``constraints.txt``. pip compares what it downloads with these digests (``--require-hashes``), wherever it
downloads from. The resolver is the uv of the environment. A unit test compares the result with
``constraints.txt``, so that an update of one without the other fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent
ROOT = IMAGES.parent
OLDEST_PYTHON = "3.11"


def main() -> int:
    """Write every ``.txt`` file of this folder."""
    for source in sorted(IMAGES.glob("*.in")):
        lock(Path(sys.executable).with_name("uv"), source)
    return 0


def lock(uv: Path, source: Path) -> None:
    """Resolve one list for every platform and for Python 3.11 and newer."""
    options = [
        "--quiet",
        "--universal",
        "--python-version",
        OLDEST_PYTHON,
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
    ]
    target = source.with_suffix(".txt")
    command: list[str | Path] = [
        uv,
        "pip",
        "compile",
        *options,
        "--constraint",
        "constraints.txt",
        source.relative_to(ROOT),
        "--output-file",
        target,
    ]
    target.unlink(missing_ok=True)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    text = f"# Written by `make requirements` from {source.name} and constraints.txt.\n{target.read_text()}"
    target.write_text(text)
    print(f"{target.relative_to(ROOT)}: {text.count('==')} distributions, {text.count('--hash=')} files")


if __name__ == "__main__":
    sys.exit(main())
