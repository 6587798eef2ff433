"""The programs of a node are found in the cache, under the digest of their module."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION
from fluxqueue.local.nodes import programs
from fluxqueue.local.nodes.programs import NODE_MODULE, NodeProgram, built_programs, program_folder


def test_programs_are_found_only_if_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program_folder().mkdir(parents=True)
    for program in NodeProgram:
        assert built_programs(build=False) is None
        path = program_folder() / program.value
        path.touch()
        path.chmod(0o755)
    assert built_programs(build=False) == built_programs() == program_folder()


def test_missing_programs_are_built_from_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = []

    def build(target: Path, display: object, module: object) -> None:
        built.append(module)
        target.mkdir()
        for program in NodeProgram:
            (target / program.value).touch(0o755)

    monkeypatch.setattr(programs, "build_tools", build)
    assert built_programs() == program_folder()
    assert built == [NODE_MODULE]


def test_the_module_names_the_version_of_the_control_plane() -> None:
    text = (NODE_MODULE.folder / "go.mod").read_text()
    assert f"k8s.io/kubernetes {KUBERNETES_VERSION} " in text
    assert all((NODE_MODULE.folder / name / "main.go").is_file() for name in NODE_MODULE.own)
    assert NODE_MODULE.go >= (1, 26)
