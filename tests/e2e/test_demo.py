"""The demo is its own proof: it says what is wrong and fails then. So here it only has to be run as a person runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluxqueue.local.plane import LocalPlane

PROGRAM = Path(sys.executable).with_name("fluxqueue")


@pytest.fixture
def plane(service_folder: Path) -> LocalPlane:
    return LocalPlane(service_folder / "demo")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("KEEP", "KUBECONFIG")}
    return subprocess.run([str(PROGRAM), "local", *words], capture_output=True, text=True, timeout=280, check=False, env=environment)


def test_the_demo_shows_the_main_job_and_leaves_nothing_running(plane: LocalPlane) -> None:
    try:
        done = run("demo", "--dir", str(plane.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every pod ran where Fluxion had put it, and what was promised came true" in done.stdout
        assert "job/big had nodes reserved from" in done.stdout
        assert "job/filler was applied after job/big and started" in done.stdout
        assert "$ kubectl fluxqueue jobs" in done.stdout
        assert "$ kubectl fluxqueue explain job/big" in done.stdout
        assert "\x1b[" not in done.stdout
        assert not plane.running
    finally:
        plane.down(delete=True)


def test_without_examples_it_says_where_it_looked(tmp_path: Path) -> None:
    done = run("demo", "--examples", str(tmp_path / "none"), "--dir", str(tmp_path / "plane"))
    assert done.returncode == 1
    where = f"there is no folder {tmp_path / 'none'}"
    assert done.stderr == f"fluxqueue local demo: {where}: run this in a clone of the repository, or give --examples FOLDER\n"
