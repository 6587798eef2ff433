"""Runs end-to-end tests on other versions of Kubernetes, and records what passed for the table of
docs/install.md.

``python tests/e2e/on_versions.py`` takes each version but the default: the oldest and the newest with every
file, those between with `SMOKE`. ``--kubernetes`` names one version, ``--files`` some files. Each file
replaces its own record only, so a run may be done in parts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from fluxqueue.local.binaries import find_binaries
from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR, VERSIONS

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "kubernetes-versions.json"
SMOKE = ("test_kinds", "test_one_pod_jobs", "test_placement", "test_miniclusters", "test_preemption")
TIMEOUT_S = 7_200
PROCESSES = "4"
Counts = dict[str, int]


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
        names = arguments.files or files_for(minor)
        found = run(minor, names)
        record(minor, found)
        failed += sum(counts["failed"] for counts in found.values()) + len(set(names) - set(found))
        sys.stdout.write(f"Kubernetes {minor}: {found}\n")
    return min(failed, 1)


def files_for(minor: str) -> Sequence[str]:
    """Return the names of the files that a version is tried with."""
    if minor in (min(VERSIONS), max(VERSIONS)):
        return sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    return SMOKE


def run(minor: str, names: Sequence[str]) -> dict[str, Counts]:
    """Return how many tests of each file passed, failed and were skipped on a version.

    A file of which no test ran is not in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [f"tests/e2e/{name}.py" for name in names]
        options = ["-q", "-n", PROCESSES, "--dist", "loadfile", f"--junitxml={report}"]
        environment = {**os.environ, "FLUXQUEUE_KUBERNETES": minor}
        command = [sys.executable, "-m", "pytest", *options, *files]
        subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=TIMEOUT_S)
        return count(report) if report.exists() else {}


def count(report: Path) -> dict[str, Counts]:
    """Return the outcomes of the tests of each file by a report of pytest."""
    found: dict[str, Counts] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = next(part for part in case.attrib["classname"].split(".") if part.startswith("test_"))
        counts = found.setdefault(name, {"passed": 0, "failed": 0, "skipped": 0})
        ends = {child.tag for child in case}
        end = "failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"
        counts[end] += 1
    return found


def record(minor: str, found: Mapping[str, Counts]) -> None:
    """Replace the records of these files on one version."""
    records = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    of_minor = records.setdefault(minor, {"version": VERSIONS[minor], "files": {}})
    if of_minor["version"] != VERSIONS[minor]:
        of_minor.update(version=VERSIONS[minor], files={})
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    of_minor["files"].update((name, {**counts, "on": today}) for name, counts in found.items())
    text = json.dumps(records, indent=1, sort_keys=True)
    RECORD.write_text(re.sub(r"\{[^{}]+\}", lambda file: " ".join(file[0].split()), text) + "\n")


if __name__ == "__main__":
    sys.exit(main())
