from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.binaries import BinariesError
from fluxqueue.local.toolchain import CONTROL_PLANE, GoModule


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
