"""The demo checks itself: it reports each error and then fails.
So this test only runs it as a person would.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.namespaces import needs_namespaces

from fluxqueue.local.localcluster import LocalCluster

PROGRAM = Path(sys.executable).with_name("fluxqueue")


@pytest.fixture
def cluster(service_folder: Path) -> LocalCluster:
    return LocalCluster(service_folder / "demo")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("KEEP", "KUBECONFIG")}
    return subprocess.run(
        [str(PROGRAM), "local", *words],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    ("scheduler", "binder"), [("stock", "default-scheduler"), ("fluxion", "FluxionScheduler")]
)
def test_the_demo_shows_the_main_job_and_leaves_nothing_running(
    cluster: LocalCluster, scheduler: str, binder: str
) -> None:
    try:
        words = ["--scheduler", scheduler] if scheduler != "stock" else []
        done = run("demo", "--dir", str(cluster.folder), "--nodes", "simulated", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every pod ran where Fluxion had put it, and every announced start came true" in done.stdout
        assert re.findall(r"^\d+ pods were bound by (.*)\.$", done.stdout, re.MULTILINE) == [binder]
        assert "job/big had nodes reserved from" in done.stdout
        assert "job/filler was applied after job/big and started" in done.stdout
        assert re.search(r"The dashboard: https://127\.0\.0\.1:\d+$", done.stdout, re.MULTILINE)
        assert "$ kubectl fluxqueue jobs" in done.stdout
        assert "$ kubectl fluxqueue explain job/big" in done.stdout
        assert "\x1b[" not in done.stdout
        assert not cluster.running
    finally:
        cluster.down(delete=True)


def test_on_processes_the_demo_computes(cluster: LocalCluster) -> None:
    needs_namespaces()
    try:
        done = run("demo", "--dir", str(cluster.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Every pod ran where Fluxion had put it, and every announced start came true" in done.stdout
        results = done.stdout.partition("== What was computed\n")[2].splitlines()
        assert re.fullmatch(r"  pi is 3\.1415926536, computed by 8 ranks on \d nodes", results[0])
        assert results[1] == "  the best of 8: damping 0.7: at rest after 2.90 s"
        assert re.fullmatch(r"  the service says: hello from hello-\w+-\w+", results[2])
        assert re.fullmatch(
            r"  The dashboard had it in the log of job/pi \(https://127\.0\.0\.1:\d+\): "
            r"KEEP=1 make demo leaves it running",
            results[3],
        )
        assert re.search(r"^ job/flux +Completed ", done.stdout, re.MULTILINE)
        if not shutil.which("flux"):
            assert (
                "\njob/flux: There is no flux on the PATH of this machine: this broker is a stand-in, which "
                in done.stdout
            )
        assert not cluster.running
    finally:
        cluster.down(delete=True)


def test_without_examples_it_names_the_folder_that_it_searched(tmp_path: Path) -> None:
    done = run("demo", "--examples", str(tmp_path / "none"), "--dir", str(tmp_path / "cluster"))
    assert done.returncode == 1
    where = f"there is no folder {tmp_path / 'none'}"
    assert done.stderr == (
        f"fluxqueue local demo: {where}: run this in a clone of the repository, or give --examples FOLDER\n"
    )
