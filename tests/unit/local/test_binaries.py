"""Which program is taken, of those on the machine; a program here is a script that says a version."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fluxqueue.local.binaries import (
    BinariesError,
    Tool,
    cached_tools,
    find_binaries,
    find_tool,
    locked,
    work_folder,
)
from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION, VERSIONS

SAID = {
    Tool.ETCD: "etcd Version: 3.6.11",
    Tool.API_SERVER: "Kubernetes v1.36.3",
    Tool.CONTROLLER_MANAGER: "Kubernetes v1.36.3",
    Tool.SCHEDULER: "Kubernetes v1.36.3",
    Tool.KUBECTL: "Client Version: v1.36.3\nKustomize Version: v5.8.1",
    Tool.KWOK: "kwok version v0.8.0 go1.26",
    Tool.HELM: "v4.0.0+g99cd196",
}


def install(folder: Path, name: str, says: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    # nothing but what the shell itself can do: PATH is ours
    program.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    program.chmod(0o755)
    return program


class Machine:
    """A machine with an asset folder, a PATH and a cache, all empty."""

    def __init__(self, root: Path) -> None:
        self.assets, self.path, self.cache = root / "assets", root / "path", root / "cache"
        self.built: list[Path] = []

    def build(self, folder: Path, version: str = KUBERNETES_VERSION) -> None:
        self.built.append(folder)
        for tool, says in SAID.items():
            if version == KUBERNETES_VERSION or KUBERNETES_VERSION in says:
                install(folder, tool.value, says.replace(KUBERNETES_VERSION, version))

    @property
    def tools(self) -> Path:
        return self.cache / "fluxqueue" / "controlplane" / KUBERNETES_VERSION


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(found.assets))
    monkeypatch.setenv("PATH", str(found.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(found.cache))
    monkeypatch.delenv("FLUXQUEUE_KUBERNETES", raising=False)
    return found


def test_assets_come_before_path_and_path_before_the_cache(machine: Machine) -> None:
    machine.build(machine.tools)
    for tool in (Tool.ETCD, Tool.API_SERVER):
        install(machine.path, tool.common_name, SAID[tool])
    install(machine.assets, "kube-apiserver", SAID[Tool.API_SERVER])
    found = find_binaries(machine.build)
    assert found[Tool.API_SERVER] == machine.assets / "kube-apiserver"
    assert found[Tool.ETCD] == machine.path / "etcd"
    assert found[Tool.KWOK] == machine.tools / "kwok"
    assert found.rejected == ()


def test_one_program_is_looked_for_without_building_any(machine: Machine) -> None:
    assert find_tool(Tool.HELM) is None
    machine.build(machine.tools)
    assert find_tool(Tool.HELM) == machine.tools / "helm"
    assert find_tool(Tool.HELM) != (ours := install(machine.path, "helm", SAID[Tool.HELM]))
    assert find_tool(Tool.HELM) == ours


def test_with_every_program_at_hand_nothing_is_built(machine: Machine) -> None:
    for tool in Tool:
        install(machine.assets, tool.common_name, SAID[tool])
    found = find_binaries(machine.build)
    assert {path.parent for path in found.paths.values()} == {machine.assets}
    assert not machine.cache.exists()


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        pytest.param(Tool.KUBECTL, "Client Version: v1.30.1", id="a vendor's older kubectl"),
        pytest.param(Tool.KUBECTL, "Client Version: v1.36.3-gke.100", id="a vendor's own build"),
        pytest.param(Tool.API_SERVER, "Kubernetes v1.35.9", id="an older minor version"),
        pytest.param(Tool.API_SERVER, "Kubernetes v1.36.0-rc.1", id="a release candidate"),
        pytest.param(Tool.ETCD, "etcd Version: 3.5.21", id="an older etcd"),
        pytest.param(Tool.KWOK, "kwok version v0.7.0", id="an older kwok"),
        pytest.param(Tool.HELM, "Client: v2.17.0", id="helm 2"),
        pytest.param(Tool.HELM, "", id="one that says nothing"),
    ],
)
def test_a_program_of_another_version_is_rejected_with_a_message(
    tool: Tool, says: str, machine: Machine
) -> None:
    machine.build(machine.tools)
    other = install(machine.assets, tool.common_name, says)
    found = find_binaries(machine.build)
    assert found[tool] == machine.tools / tool.value
    (sentence,) = found.rejected
    assert sentence.startswith(f"{other} is not used: its version is ")
    assert repr(says.splitlines()[0] if says else "nothing") in sentence


def test_what_does_not_fit_in_assets_is_still_taken_from_path(machine: Machine) -> None:
    machine.build(machine.tools)
    install(machine.assets, "kubectl", "Client Version: v1.30.1")
    install(machine.path, "kubectl", SAID[Tool.KUBECTL])
    found = find_binaries(machine.build)
    assert found[Tool.KUBECTL] == machine.path / "kubectl"
    assert len(found.rejected) == 1


def test_a_program_that_fails_or_cannot_be_run_is_rejected(machine: Machine) -> None:
    machine.build(machine.tools)
    install(machine.path, "helm", SAID[Tool.HELM], code=3)
    machine.assets.mkdir()
    (machine.assets / "kwok").write_bytes(b"\x7fELF for another machine")
    (machine.assets / "kwok").chmod(0o755)
    found = find_binaries(machine.build)
    assert (found[Tool.HELM], found[Tool.KWOK]) == (machine.tools / "helm", machine.tools / "kwok")
    assert len(found.rejected) == 2


def test_a_file_that_may_not_be_executed_is_no_program(machine: Machine) -> None:
    machine.build(machine.tools)
    install(machine.assets, "helm", SAID[Tool.HELM]).chmod(0o644)
    found = find_binaries(machine.build)
    assert found[Tool.HELM] == machine.tools / "helm"
    assert found.rejected == ()


def test_what_is_missing_is_built_once_beside_its_place_and_moved_there_whole(machine: Machine) -> None:
    def build(folder: Path, version: str) -> None:
        assert not machine.tools.exists()
        assert folder != machine.tools
        machine.build(folder, version)

    first, second = find_binaries(build), find_binaries(build)
    assert len(machine.built) == 1
    assert first.paths == second.paths == {tool: machine.tools / tool.value for tool in Tool}
    assert sorted(path.name for path in machine.tools.parent.iterdir()) == ["lock", KUBERNETES_VERSION]


def test_another_version_has_programs_of_its_own_and_shares_the_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machine.tools.with_name(VERSIONS["1.37"])
    found = find_binaries(machine.build, "1.37")
    assert {tool for tool, path in found.paths.items() if path.parent == machine.tools} == {
        Tool.ETCD,
        Tool.KWOK,
        Tool.HELM,
    }
    assert sorted(path.name for path in other.iterdir()) == [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ]
    assert found[Tool.KUBECTL] == other / "kubectl"
    assert found.kubernetes == VERSIONS["1.37"]
    monkeypatch.setenv("FLUXQUEUE_KUBERNETES", "1.37")
    assert find_binaries(machine.build) == found
    assert find_binaries(machine.build, "1.36")[Tool.KUBECTL] == machine.tools / "kubectl"
    assert len(machine.built) == 2


def test_a_program_on_path_must_have_the_version_that_was_chosen(machine: Machine) -> None:
    for version in (KUBERNETES_VERSION, VERSIONS["1.34"]):
        machine.build(machine.tools.with_name(version), version)
    install(machine.path, "kubectl", SAID[Tool.KUBECTL])
    found = find_binaries(machine.build, "1.34")
    assert found[Tool.KUBECTL].parent.name == VERSIONS["1.34"]
    assert found.rejected[0].endswith("and kubectl 1.34 is needed")


def test_a_version_that_is_not_built_is_refused_with_those_that_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUXQUEUE_KUBERNETES", "1.12")
    with pytest.raises(BinariesError, match=r"Kubernetes '1\.12' are built: choose one of 1\.34, "):
        find_binaries(machine.build)


def test_a_cache_that_lacks_a_program_is_built_anew(machine: Machine) -> None:
    machine.build(machine.tools)
    (machine.tools / "kwok").unlink()
    (machine.tools / "kube-scheduler").chmod(0o644)
    cached_tools(build=machine.build)
    assert len(machine.built) == 2
    assert os.access(machine.tools / "kwok", os.X_OK)


def _half(folder: Path, version: str) -> None:
    install(folder, "helm", SAID[Tool.HELM])


def _broken(folder: Path, version: str) -> None:
    _half(folder, version)
    raise BinariesError("go build ended with exit code 1")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(_half, "no complete set", id="incomplete"),
        pytest.param(_broken, "exit code 1", id="fails"),
    ],
)
def test_a_failed_build_leaves_no_programs(
    build: Callable[[Path, str], None], message: str, machine: Machine
) -> None:
    with pytest.raises(BinariesError, match=message):
        find_binaries(build)
    assert not machine.tools.exists()


def test_a_build_finds_what_the_one_before_left_and_not_that_of_another_version(machine: Machine) -> None:
    machine.tools.parent.mkdir(parents=True)
    abandoned = machine.tools.parent / ".v1.2.3"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    with pytest.raises(BinariesError):
        find_binaries(_broken)

    def go_on(folder: Path, version: str) -> None:
        assert [path.name for path in folder.iterdir()] == ["helm"]
        machine.build(folder, version)

    find_binaries(go_on)
    assert sorted(path.name for path in machine.tools.parent.iterdir()) == ["lock", KUBERNETES_VERSION]


def test_a_cache_that_cannot_be_written_is_named_with_a_remedy(machine: Machine) -> None:
    machine.tools.parents[1].mkdir(parents=True)
    machine.tools.parent.write_text("a file where the folder should be")
    with pytest.raises(
        BinariesError,
        match=r"cannot be kept in .*controlplane: .*; set XDG_CACHE_HOME to a folder that can be written",
    ):
        find_binaries(machine.build)


def test_what_a_build_needed_is_deleted_once_the_programs_are_in_place(machine: Machine) -> None:
    def build(folder: Path, version: str) -> None:
        work_folder(folder).mkdir()
        machine.build(folder, version)

    find_binaries(build)
    assert sorted(path.name for path in machine.tools.parent.iterdir()) == ["lock", KUBERNETES_VERSION]
    left = work_folder(machine.tools.with_name(f".{KUBERNETES_VERSION}"))
    left.mkdir()  # as after the end of a process that was deleting it
    find_binaries(build)
    assert len(machine.built) == 1
    assert not left.exists()


def test_a_process_that_waits_for_another_build_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock"
    with (
        locked(lock),
        pytest.raises(BinariesError, match="another process holds"),
        locked(lock, timeout_s=0.1),
    ):
        pass
    assert f"another process holds {lock}: waiting" in capsys.readouterr().err
