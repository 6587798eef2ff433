"""Builds the archives of the kubectl plugin for krew, one for each platform, and the manifest that names
them.

``make krew URL=https://host/path`` writes ``build/krew``: archives with the plugin, the packages it needs,
and a launcher that needs only Python; and ``fluxqueue.yaml`` with their addresses below the URL and their
digests. An archive has the compiled modules of each supported Python side by side, since their names differ.
The same sources give the same archives.

``--installed`` takes the packages of this environment instead of downloading those of all platforms, for one
archive that runs here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("api", "cli", "fluxion", "kube", "queue")
"""What the plugin imports, and what its imports need."""
PACKAGES = ("msgspec", "orjson", "pyyaml")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROGRAM = "kubectl-fluxqueue"
HOMEPAGE = "https://github.com/converged-computing/fluxqueue"
CAVEATS = (
    "It needs Python 3.11 or newer. `kubectl fluxqueue top` and `uninstall` need more packages than the "
    "archive has: "
    "pip install 'fluxqueue-hpc[top]'.\n"
)


@dataclass(frozen=True)
class Target:
    """A platform, as krew selects it and as wheels name it."""

    os: str
    arch: str
    tags: tuple[str, ...]

    @property
    def archive(self) -> str:
        """The name of its archive."""
        return f"{PROGRAM}_{self.os}_{self.arch}.tar.gz"


TARGETS = (
    Target("linux", "amd64", ("manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")),
    Target("linux", "arm64", ("manylinux_2_17_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64")),
    Target(
        "darwin",
        "amd64",
        ("macosx_10_15_x86_64", "macosx_10_13_x86_64", "macosx_11_0_x86_64", "macosx_10_12_x86_64"),
    ),
    Target("darwin", "arm64", ("macosx_11_0_arm64", "macosx_15_0_arm64")),
)


def version() -> str:
    """Return the version of the project."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def own_files() -> dict[str, bytes]:
    """Return our modules by their path below ``site``, and what says their version."""
    found = {
        (Path("fluxqueue") / path.relative_to(ROOT)).as_posix(): path.read_bytes()
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"fluxqueue-{version()}.dist-info/METADATA"
    return found | {info: f"Metadata-Version: 2.1\nName: fluxqueue\nVersion: {version()}\n".encode()}


def downloaded(target: Target, folder: Path) -> dict[str, bytes]:
    """Return the files of the packages for a platform and every Python, pinned as in ``constraints.txt``."""
    files: dict[str, bytes] = {}
    platforms = [word for tag in target.tags for word in ("--platform", tag)]
    for python in PYTHONS:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            python,
        ]
        subprocess.run(
            [*command, *platforms, "-c", str(ROOT / "constraints.txt"), "-d", str(folder), *PACKAGES],
            check=True,
        )
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            files |= {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}
    return files


def installed() -> dict[str, bytes]:
    """Return the files of the packages in this environment."""
    files: dict[str, bytes] = {}
    for package in PACKAGES:
        distribution = importlib.metadata.distribution(package)
        for file in distribution.files or ():
            if file.suffix != ".pyc" and not file.as_posix().startswith(".."):
                files[file.as_posix()] = Path(str(distribution.locate_file(file))).read_bytes()
    return files


def archive(packages: Mapping[str, bytes]) -> bytes:
    """Return an archive with our modules and these packages."""
    launcher = (ROOT / "deploy" / "krew" / "launcher.py").read_bytes()
    entries = [
        (PROGRAM, launcher, 0o755),
        ("kubectl_complete-fluxqueue", launcher, 0o755),
        ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
    ]
    entries += [
        (f"site/{name}", content, 0o644) for name, content in sorted((own_files() | dict(packages)).items())
    ]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name, content, mode in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            packed.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def manifest(url: str, digests: Iterable[tuple[Target, str]]) -> dict[str, Any]:
    """Return the manifest for krew's index; ``url`` is where the archives are."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "fluxqueue"},
        "spec": {
            "version": f"v{version()}",
            "homepage": HOMEPAGE,
            "shortDescription": "Steers a batch queue: why jobs wait, until when",
            "description": (
                "Shows what waits and what runs in fluxqueue, and why; submits, holds, releases, "
                "cancels, moves and requeues work;\n"
                "shows nodes, reservations, shares and the history of ended work.\n"
            ),
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": target.os, "arch": target.arch}},
                    "uri": f"{url.rstrip('/')}/{target.archive}",
                    "sha256": digest,
                    "bin": PROGRAM,
                }
                for target, digest in digests
            ],
        },
    }


def here() -> Target:
    """Return the platform of this machine.

    Raises
    ------
    SystemExit
        Krew has no plugins of ours for it.
    """
    arch = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(
        platform.machine(), platform.machine()
    )
    for target in TARGETS:
        if (target.os, target.arch) == (platform.system().lower(), arch):
            return target
    raise SystemExit(f"there is no archive for {platform.system()} on {platform.machine()}")


def main(words: Sequence[str] | None = None) -> int:
    """Write the archives and the manifest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="where the archives will be")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "krew", help="where they are written")
    parser.add_argument(
        "--installed",
        action="store_true",
        help="only for this machine, with the packages of this environment",
    )
    options = parser.parse_args(words)
    options.folder.mkdir(parents=True, exist_ok=True)
    digests = []
    for target in (here(),) if options.installed else TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            content = archive(installed() if options.installed else downloaded(target, Path(folder)))
        (options.folder / target.archive).write_bytes(content)
        digests.append((target, hashlib.sha256(content).hexdigest()))
        print(options.folder / target.archive)
    (options.folder / "fluxqueue.yaml").write_text(
        yaml.safe_dump(manifest(options.url, digests), sort_keys=False)
    )
    print(options.folder / "fluxqueue.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
