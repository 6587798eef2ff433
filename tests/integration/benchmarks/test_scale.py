"""The scale benchmark on a small cluster: all programs start, work is stored, runs and ends,
and the table has a figure for each point.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(240)
def test_the_scale_benchmark_measures_each_point(tmp_path: Path) -> None:
    size = ["--nodes", "3", "--running", "12", "--points", "10,20", "--ends", "1"]
    command = [
        sys.executable,
        str(ROOT / "benchmarks/scale/scale_bench.py"),
        *size,
        "--json",
        str(tmp_path / "scale.json"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=220, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    points = json.loads((tmp_path / "scale.json").read_text())["points"]
    assert [point["pending"] for point in points] == [10, 20]
    assert all(
        point["cycle_s"] > 0 and point["queue_mib"] > 0 and point["start_cycle_s"] > 0 for point in points
    )
    assert "grows with the number of pending" in run.stdout
