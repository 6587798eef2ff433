"""Every benchmark of issue size, one after the other: what `make bench` runs.

Each prints its own table and writes JSON to ``benchmarks/results``. They want the machine to themselves; the long ones (full traces, deep
tables, the matcher at 10,000 nodes) are targets of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "webhook_reviews.py",
    "minicluster_render.py",
    "burst.py",
    "clogging.py",
    "minicluster_start.py",
    "kube_reflector.py",
    "fluxion_grpc.py",
)


def main() -> int:
    """Run them all; returns how many failed."""
    failed = 0
    for script in SCRIPTS:
        print(f"\n== {script}", flush=True)
        failed += subprocess.run([sys.executable, str(FOLDER / script)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
