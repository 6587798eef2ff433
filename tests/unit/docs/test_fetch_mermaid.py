from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

import fetch_mermaid
import pytest
from support.scripts import script_head

NPM = """{head}import shutil, sys
shutil.copy({archive!r}, "mermaid.tgz")
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in of npm whose archive has a script."""

    archive = tmp_path / "archive.tgz"
    with tarfile.open(archive, "w:gz") as file:
        member = tarfile.TarInfo(fetch_mermaid.MEMBER)
        member.size = 6
        file.addfile(member, BytesIO(b"draw()"))
    program = tmp_path / "npm"
    program.write_text(NPM.format(head=script_head(), archive=str(archive)))
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    return archive


def test_the_script_of_the_expected_archive_is_kept(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import base64
    import hashlib

    monkeypatch.setattr(
        fetch_mermaid, "SHA512", base64.b64encode(hashlib.sha512(npm.read_bytes()).digest()).decode()
    )
    target = tmp_path / "made" / "mermaid.min.js"
    assert fetch_mermaid.fetch(target) == ""
    assert target.read_bytes() == b"draw()"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_another_archive_is_refused_and_nothing_is_written(npm: Path, tmp_path: Path) -> None:
    assert "is not the archive that was expected" in fetch_mermaid.fetch(tmp_path / "made" / "mermaid.min.js")
    assert not (tmp_path / "made").exists()


def test_without_npm_the_site_is_built_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(fetch_mermaid, "TARGET", tmp_path / "mermaid.min.js")
    assert fetch_mermaid.main() == 0
    assert "npm is not on PATH" in capsys.readouterr().err
