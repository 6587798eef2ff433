"""The archives for krew: what is in them, that they run without the package, and the manifest."""

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from support.scripts import load_script

from fluxqueue.local.unpacking import unpack

FOLDER = Path(__file__).parents[3] / "deploy" / "krew"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return load_script("deploy/krew/krew_archives.py")


@pytest.fixture(scope="module")
def made(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this machine, unpacked, and the manifest beside it."""
    folder = tmp_path_factory.mktemp("krew")
    assert build.main(["--url", "https://example.com/releases/", "--folder", str(folder), "--installed"]) == 0
    with tarfile.open(folder / build.here().archive) as packed:
        unpack(packed, folder / "unpacked")
    return folder


def run(made: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the archive without the packages of this environment."""
    command = [
        getattr(sys, "_base_executable", sys.executable),
        "-S",
        "-s",
        str(made / "unpacked" / program),
        *words,
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"HOME": str(made), "PATH": "/usr/bin:/bin"},
    )


def test_the_archive_runs_by_itself(made: Path) -> None:
    done = run(
        made, "kubectl-fluxqueue", "submit", "--image", "busybox", "--dry-run", "-o", "yaml", "--", "true"
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["kind"] == "Job"
    done = run(made, "kubectl-fluxqueue", "jobs")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("error: no kubeconfig at ")
    assert run(made, "kubectl_complete-fluxqueue", "reque").stdout.startswith("requeue\t")


def test_what_the_archive_does_not_have_is_named(made: Path) -> None:
    done = run(made, "kubectl-fluxqueue", "uninstall", "--release-held", "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("error: this needs the Python package ")
    assert done.stderr.endswith("which is not installed: pip install 'fluxqueue-hpc[server]'\n")


def test_the_manifest_names_the_archive_with_its_digest(build: ModuleType, made: Path) -> None:
    written = yaml.safe_load((made / "fluxqueue.yaml").read_text())
    target = build.here()
    (platform,) = written["spec"]["platforms"]
    assert platform["uri"] == f"https://example.com/releases/{target.archive}"
    assert platform["sha256"] == hashlib.sha256((made / target.archive).read_bytes()).hexdigest()
    assert platform["selector"] == {"matchLabels": {"os": target.os, "arch": target.arch}}
    assert (made / "unpacked" / platform["bin"]).stat().st_mode & 0o111
    assert written["metadata"]["name"] == "fluxqueue"
    assert written["spec"]["version"] == f"v{build.version()}"
    assert len(written["spec"]["shortDescription"]) <= 50, "krew's index refuses longer ones"


def test_the_same_sources_give_the_same_archive(build: ModuleType) -> None:
    packages = {"msgspec/__init__.py": b""}
    assert build.archive(packages) == build.archive(packages)


def test_every_platform_has_an_archive_of_its_own(build: ModuleType) -> None:
    platforms = build.manifest("https://example.com", [(target, "0" * 64) for target in build.TARGETS])[
        "spec"
    ]["platforms"]
    assert len({platform["uri"] for platform in platforms}) == len(build.TARGETS) == 4
