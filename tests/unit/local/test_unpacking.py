"""Archives are unpacked on Pythons that know filters and on older ones."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fluxqueue.local.unpacking import unpack


def packed(name: str) -> io.BytesIO:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"text"))
    content.seek(0)
    return content


def test_the_members_of_an_archive_are_in_the_folder(tmp_path: Path) -> None:
    with tarfile.open(fileobj=packed("a/b")) as archive:
        unpack(archive, tmp_path / "new")
    assert (tmp_path / "new" / "a" / "b").read_text() == "text"


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filters")
def test_a_member_outside_the_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(fileobj=packed("../b")) as archive, pytest.raises(tarfile.OutsideDestinationError):
        unpack(archive, tmp_path / "new")
