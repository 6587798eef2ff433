"""Where the local cluster keeps its programs and its data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fluxqueue.local.user_folders import cache_folder, state_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_folders_are_in_the_home_of_the_user(home: Path) -> None:
    assert cache_folder() == home / ".cache" / "fluxqueue"
    assert state_folder() == home / ".local" / "state" / "fluxqueue" / "local"


def test_variables_name_other_folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / "cache" / "fluxqueue"
    assert state_folder().is_relative_to(home)


@pytest.mark.parametrize("kind", ["a file", "a folder without rights"])
def test_a_home_that_cannot_be_written_stops_nobody(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a file":
        home.write_text("")
    else:
        home.mkdir(mode=0o500)
        allowed = os.access
        # root may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home and allowed(path, mode))
    assert cache_folder() == Path(sys.prefix) / ".cache" / "fluxqueue"
    assert state_folder().is_relative_to(sys.prefix)
