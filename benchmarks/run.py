"""Runs the short benchmarks, one after the other: `make bench`.

Each prints its own table and writes JSON to ``benchmarks/results``. They need an otherwise idle machine. The
long benchmarks (full traces, deep tables, the matcher at 10,000 nodes) are separate targets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "webhook_reviews.py",
    "extender_filter.py",
    "minicluster_render.py",
    "burst.py",
    "clogging.py",
    "scheduler_latency.py",
    "minicluster_start.py",
    "kube_reflector.py",
    "fluxion_grpc.py",
)


def main() -> int:
    """Run all benchmarks, and return the number that failed."""
    failed = 0
    for script in SCRIPTS:
        print(f"\n== {script}", flush=True)
        failed += subprocess.run([sys.executable, str(FOLDER / script)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
