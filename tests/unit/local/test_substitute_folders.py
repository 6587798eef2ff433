from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fluxqueue.local.substitute_folders import claim, prune


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def claimed_by_another(root: Path, name: str, stands_for: Path, *, kept: bool) -> Path:
    """A stand-in with data, whose process has ended."""
    folder = root / name
    program = (
        "import sys; from pathlib import Path; from fluxqueue.local.substitute_folders import claim;"
        "claim(Path(sys.argv[1]), Path(sys.argv[2]), kept=sys.argv[3] == 'True')"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(folder), str(stands_for), str(kept)], check=True, timeout=60
    )
    (folder / "data").mkdir()
    return folder


def test_what_a_dead_session_left_is_removed(root: Path, tmp_path: Path) -> None:
    left = claimed_by_another(root, "postgres-1", tmp_path / "session" / "postgres", kept=False)
    assert prune(root) == [left]
    assert [path.name for path in root.iterdir()] == ["lock"]


def test_what_is_to_outlive_its_process_stays_until_what_it_stands_for_is_gone(
    root: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    folder = claimed_by_another(root, "postgres-1", home / "postgres", kept=True)
    assert prune(root) == []
    home.rmdir()
    assert prune(root) == [folder]


def test_what_a_living_process_uses_stays(root: Path, tmp_path: Path) -> None:
    claim(root / "postgres-1", tmp_path / "gone" / "postgres", kept=False)
    assert prune(root) == []


def test_a_process_that_got_the_pid_of_a_dead_one_does_not_keep_what_that_left(
    root: Path, tmp_path: Path
) -> None:
    claim(root / "postgres-1", tmp_path / "gone" / "postgres", kept=False)
    note = root / "postgres-1" / "owner.json"
    written = msgspec.json.decode(note.read_bytes())
    assert written["pid"] == os.getpid()
    note.write_bytes(msgspec.json.encode({**written, "started": written["started"] - 1}))
    assert prune(root) == [root / "postgres-1"]


def test_a_folder_a_server_still_works_in_stays_although_its_owner_is_gone(
    root: Path, tmp_path: Path
) -> None:
    folder = claimed_by_another(root, "postgres-1", tmp_path / "gone" / "postgres", kept=False)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=folder / "data"
    ) as server:
        (folder / "data" / "postmaster.pid").write_text(f"{server.pid}\n{folder / 'data'}\n")
        assert prune(root) == []
        server.communicate(b"\n", timeout=30)
    assert prune(root) == [folder]


def test_folders_without_a_readable_note_are_left_alone(root: Path) -> None:
    (root / "embedded-postgres-1").mkdir()
    (root / "postgres-1").mkdir()
    (root / "postgres-1" / "owner.json").write_text("{")
    assert prune(root) == []


def test_a_stand_in_taken_up_again_belongs_to_who_took_it(root: Path, tmp_path: Path) -> None:
    folder = claimed_by_another(root, "postgres-1", tmp_path / "session" / "postgres", kept=False)
    claim(folder, tmp_path / "session" / "postgres", kept=False)
    assert prune(root) == []
    assert (folder / "data").is_dir()


def test_no_root_no_leftovers(tmp_path: Path) -> None:
    assert prune(tmp_path / "none") == []
