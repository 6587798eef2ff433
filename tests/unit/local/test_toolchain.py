from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.binaries import BinariesError
from fluxqueue.local.toolchain import CONTROL_PLANE, GoModule, copy_assets


def module(folder: Path) -> GoModule:
    return GoModule("kueue", "Kueue", packages=1, source=folder)


def test_a_module_is_in_the_package_data_unless_it_names_its_folder(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module m\n\ngo 1.26.0\n")
    (tmp_path / "go.sum").touch()
    assert module(tmp_path).folder == tmp_path.resolve()
    assert module(tmp_path).go == (1, 26, 0)
    assert CONTROL_PLANE.folder.name == "controlplane"


def test_a_folder_without_checksums_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match=r"go\.mod is missing from the installation"):
        _ = module(tmp_path).folder


def test_assets_keep_their_paths_within_the_module(tmp_path: Path) -> None:
    source, target = tmp_path / "module", tmp_path / "target"
    (source / "docs" / "examples").mkdir(parents=True)
    (source / "docs" / "examples" / "one.yaml").write_text("kind: One")
    (source / "LICENSE").write_text("free")
    target.mkdir()
    copy_assets(source, ("LICENSE", "docs/examples"), target)
    assert (target / "LICENSE").read_text() == "free"
    assert (target / "docs" / "examples" / "one.yaml").read_text() == "kind: One"
