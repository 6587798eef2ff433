from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.scripts import script_head

from fluxqueue.local.binaries import BinariesError
from fluxqueue.local.go_modules import CONTROL_PLANE, GoModule, control_plane
from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION, VERSIONS, minor_of
from fluxqueue.local.toolchain import build_tools, copy_assets


def module(folder: Path) -> GoModule:
    return GoModule("kueue", "Kueue", source=folder)


def test_a_module_is_in_the_package_data_unless_it_names_its_folder(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module m\n\ngo 1.26.0\n")
    (tmp_path / "go.sum").touch()
    assert module(tmp_path).folder == tmp_path.resolve()
    assert module(tmp_path).go == (1, 26, 0)
    assert CONTROL_PLANE.folder.name == "controlplane"


@pytest.mark.parametrize("version", VERSIONS.values())
def test_each_version_of_kubernetes_has_a_module_that_names_it(version: str) -> None:
    module = control_plane(version)
    text = (module.folder / "go.mod").read_text()
    assert (module is CONTROL_PLANE) == (version == KUBERNETES_VERSION)
    assert f"k8s.io/kubernetes {version} " in text
    assert f"k8s.io/api => k8s.io/api v0.{version.removeprefix('v1.')}\n" in text
    assert f"version.gitVersion={version} " in module.flags[-1]
    assert module.flags[-1].endswith(f"gitMinor={minor_of(version).removeprefix('1.')}")


def test_a_folder_without_checksums_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match=r"go\.mod is missing from the installation"):
        _ = module(tmp_path).folder


def test_assets_keep_their_paths_within_the_module(tmp_path: Path) -> None:
    source, target = tmp_path / "module", tmp_path / "target"
    (source / "docs" / "examples").mkdir(parents=True)
    (source / "docs" / "examples" / "one.yaml").write_text("kind: One")
    (source / "LICENSE").write_text("free")
    target.mkdir()
    for _ in range(2):  # the second time as in a build that was ended after it had copied them
        copy_assets(source, ("LICENSE", "docs/examples"), target)
    assert (target / "LICENSE").read_text() == "free"
    assert (target / "docs" / "examples" / "one.yaml").read_text() == "kind: One"


_GO = """{head}import os, pathlib, sys, time
arguments = sys.argv[1:]
with open({calls!r}, "a") as calls:
    print(*arguments, file=calls)
if arguments[0] == "version":
    print("go version go9.0 linux/amd64")
    raise SystemExit
cache = pathlib.Path(os.environ["GOCACHE"])
needed = {{"main/two": ["lib/second", "lib/first", "lib/third"], "main/one": ["lib/first", "lib/only-one"]}}
if "-export" in arguments:
    for package in needed[arguments[-1]]:
        print(package, cache / package.replace("/", "-"))
    print("unsafe ")
elif arguments[0] == "list":
    modules = pathlib.Path(os.environ["GOMODCACHE"])
    for package in ("lib/first", "lib/second", "lib/third", "lib/only-one", "lib/unused"):
        (modules / package).mkdir(parents=True, exist_ok=True)
        if package != "lib/unused":
            print(package, modules / package, sep="\\t")
    print("unsafe", "/usr/lib/go/unsafe", sep="\\t")
    for program, packages in needed.items():
        print(program, "/a folder", " ".join(packages + ["unsafe"]), "/a bin/" + program[5:], sep="\\t")
else:
    cache.mkdir(parents=True, exist_ok=True)
    named = [text for text in arguments if "/" in text and not text.startswith("/") and "=" not in text]
    for package in named:
        if os.path.exists({stop!r}) and pathlib.Path({stop!r}).read_text() == package:
            print("the disk is full", file=sys.stderr)
            raise SystemExit(1)
        kept = cache / package.replace("/", "-")
        if not kept.exists():
            kept.touch()
            print(package, file=sys.stderr)
    if "-o" in arguments:
        program = pathlib.Path(arguments[arguments.index("-o") + 1])
        program.write_text("program")
        program.chmod(0o755)
"""


class Shown:
    """A display that remembers."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int | None]] = []
        self.done: list[tuple[str, int]] = []

    def step(self, text: str, total: int | None = None) -> None:
        self.steps.append((text, total))
        self.done.clear()

    def advance(self, text: str, units: int = 1) -> None:
        self.done.append((text, units))

    @property
    def share(self) -> float:
        total = self.steps[-1][1]
        assert total is not None
        return sum(units for _, units in self.done) / total


class Go:
    """A Go on PATH that compiles nothing, and a module with two programs."""

    def __init__(self, folder: Path) -> None:
        self.stop, self.calls = folder / "stop", folder / "calls"
        source = folder / "module with a space"
        source.mkdir()
        (source / "go.mod").write_text("module m\n\ngo 1.26.0\n")
        (source / "go.sum").touch()
        self.module = GoModule("two", "two programs", disk_gib=0, source=source)
        self.target = folder / "cache folder" / "two"
        (folder / "bin").mkdir()
        program = folder / "bin" / "go"
        program.write_text(_GO.format(head=script_head(), calls=str(self.calls), stop=str(self.stop)))
        program.chmod(0o755)

    def build(self) -> Shown:
        shown = Shown()
        build_tools(self.target, shown, self.module)
        return shown

    def compiled(self) -> list[str]:
        """Return the last argument of each call of the compiler."""
        return [line.split()[-1] for line in self.calls.read_text().splitlines() if line.startswith("build")]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)
    return Go(tmp_path)


def test_packages_are_compiled_before_each_program_is_linked(go: Go) -> None:
    shown = go.build()
    assert go.compiled() == ["lib/only-one", "main/one", "lib/third", "main/two"]
    assert sorted(path.name for path in go.target.iterdir()) == ["one", "two"]
    assert [text for text, _ in shown.steps] == [
        "fetching the sources of two programs",
        "building two programs",
    ]
    assert {"program 1 of 2, one", "program 2 of 2, two"} <= {text for text, _ in shown.done}


def test_the_progress_counts_every_unit_to_the_last(go: Go) -> None:
    shown = go.build()
    assert shown.share == 1
    assert [text for text, units in shown.done if units][:3] == ["lib/first", "lib/only-one", "main/one"]


def test_what_no_later_program_needs_is_deleted_once_linked(go: Go) -> None:
    go.stop.write_text("main/two")
    with pytest.raises(BinariesError):
        go.build()
    cache = go.target.with_name("two.build") / "gocache"
    assert sorted(path.name for path in cache.iterdir()) == [
        "lib-first",
        "lib-second",
        "lib-third",
        "main-one",
    ]


def test_sources_that_no_program_needs_are_deleted_first(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own modules"
    go.build()
    (modules,) = go.target.parent.glob("*/gomodcache")
    assert sorted(folder.name for folder in (modules / "lib").iterdir()) == [
        "first",
        "only-one",
        "second",
        "third",
    ]
    monkeypatch.setenv("GOMODCACHE", str(own))
    go.build()
    assert (own / "lib" / "unused").is_dir()


def test_the_cache_of_the_user_is_left_alone(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOCACHE", str(tmp_path / "own"))
    go.build()
    assert "lib-only-one" in {path.name for path in (tmp_path / "own").iterdir()}


@pytest.mark.parametrize("stopped_at", ["lib/second", "main/one", "main/two"])
def test_a_build_that_was_ended_goes_on_where_it_was(go: Go, stopped_at: str) -> None:
    go.stop.write_text(stopped_at)
    with pytest.raises(BinariesError, match="the disk is full"):
        go.build()
    kept = {path.name: path.stat().st_mtime_ns for path in go.target.iterdir()}
    assert list(kept) == ([] if stopped_at == "main/one" else ["one"])
    go.stop.unlink()
    shown = go.build()
    assert shown.share == 1
    assert "lib/first" not in {text for text, _ in shown.done}  # it was compiled before
    assert {path.name: path.stat().st_mtime_ns for path in go.target.iterdir()}.items() >= kept.items()


def test_programs_of_other_versions_are_not_kept(go: Go) -> None:
    go.stop.write_text("main/two")
    with pytest.raises(BinariesError):
        go.build()
    go.stop.unlink()
    assert go.module.source is not None
    (go.module.source / "go.sum").write_text("other versions")
    go.build()
    assert go.compiled().count("main/one") == 2
