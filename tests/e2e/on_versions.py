"""Runs end-to-end tests on other versions of Kubernetes, file by file, and records what passed for the table
of docs/install.md.

``python tests/e2e/on_versions.py`` takes each version but the default: the oldest and the newest with every
file, those between with `SMOKE`. ``--kubernetes`` names one version, ``--files`` some files. Each file
replaces its own record only, so a run may be done in parts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from fluxqueue.local.binaries import find_binaries
from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR, VERSIONS

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "kubernetes-versions.json"
SMOKE = ("test_kinds", "test_one_pod_jobs", "test_placement", "test_miniclusters", "test_preemption")
FILE_TIMEOUT_S = 3_600


def main() -> int:
    """Run the files and write the record; returns 1 if a file failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubernetes", choices=tuple(VERSIONS), default=None)
    parser.add_argument("--files", nargs="+", default=None, metavar="NAME", help="such as test_kinds")
    arguments = parser.parse_args()
    minors = (
        [arguments.kubernetes]
        if arguments.kubernetes
        else [minor for minor in VERSIONS if minor != DEFAULT_MINOR]
    )
    failed = 0
    for minor in minors:
        find_binaries(minor=minor)
        for name in arguments.files or files_for(minor):
            counts = run(minor, name)
            record(minor, name, counts)
            sys.stdout.write(f"Kubernetes {minor}, {name}: {counts}\n")
            failed += counts["failed"]
    return min(failed, 1)


def files_for(minor: str) -> Sequence[str]:
    """Return the names of the files that a version is tried with."""
    if minor in (min(VERSIONS), max(VERSIONS)):
        return sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    return SMOKE


def run(minor: str, name: str) -> dict[str, int]:
    """Return how many tests of a file passed, failed and were skipped on a version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"tests/e2e/{name}.py", f"--junitxml={report}"]
        environment = {**os.environ, "FLUXQUEUE_KUBERNETES": minor}
        subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=FILE_TIMEOUT_S)
        if not report.exists():
            return {"passed": 0, "failed": 1, "skipped": 0}
        suite = ElementTree.parse(report).getroot()[0].attrib
    wrong, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    return {"passed": int(suite["tests"]) - wrong - skipped, "failed": wrong, "skipped": skipped}


def record(minor: str, name: str, counts: dict[str, int]) -> None:
    """Replace the record of one file on one version."""
    records = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    of_minor = records.setdefault(minor, {"version": VERSIONS[minor], "files": {}})
    if of_minor["version"] != VERSIONS[minor]:
        of_minor.update(version=VERSIONS[minor], files={})
    of_minor["files"][name] = {**counts, "on": datetime.datetime.now(datetime.UTC).date().isoformat()}
    RECORD.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
