"""The build of programs from the Go modules of the project, such as the control plane's from
`local/data/controlplane/go.mod`.

Any Go can be used that is not older than go.mod says (`fluxqueue.local.go_programs`). No C compiler is
needed. The control plane takes about six minutes on two cores and 3 GB of disk, of which 480 MB remain.

The compiler is called for some hundred packages at a time, in the order of their imports, and then once for
each program. So it is known how many packages are left, the compiler's own temporary files stay small, and a
build that is ended goes on where it was: Go's caches and the programs that are complete wait in the folder of
the build. `binaries.cached_programs` deletes the caches when all programs are in their place, unless
``GOCACHE`` and ``GOMODCACHE`` name other folders. Nothing is written to /tmp, which is a RAM disk on many
machines.

The module folder is copied first, so that a checkout is not changed. User settings that would change the
result (``GOFLAGS``, workspaces, automatic toolchains) are disabled. ``go.sum`` determines every byte that is
compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.local.binaries import BinariesError, work_folder
from fluxqueue.local.go_modules import CONTROL_PLANE, GoModule, control_plane
from fluxqueue.local.go_programs import BuildDisplay, find_go
from fluxqueue.local.go_sources import delete_unused

__all__ = ["build_control_plane", "build_tools", "copy_assets"]

_BUILD_TIMEOUT_S = 3_000
_MODULE_FLAGS = ("-mod=readonly", "-modcacherw")
_PACKAGES_AT_A_TIME = 150
_UNITS_OF_A_PROGRAM = 50
"""The link of a program takes as long as about this many packages."""


class _Silent:
    def step(self, text: str, total: int | None = None) -> None:
        pass

    def advance(self, text: str, units: int = 1) -> None:
        pass


def build_control_plane(target: Path, version: str, display: BuildDisplay | None = None) -> None:
    """Build the programs of a version of Kubernetes, those of the default with etcd, kwok and helm;
    see `build_tools`.
    """
    build_tools(target, display, control_plane(version))


def build_tools(target: Path, display: BuildDisplay | None = None, module: GoModule = CONTROL_PLANE) -> None:
    """Build all programs of a module into a folder.

    Parameters
    ----------
    target
        The folder; programs that an earlier build completed there are kept. Its parent needs the disk space
        of the module during the build.
    display
        Shows the progress.
    module
        By default that of the control plane.

    Raises
    ------
    BinariesError
        There is no Go or not enough disk space, or the compiler failed; with its message.
    """
    display = display or _Silent()
    work = work_folder(target)
    work.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(work).free + _size(work)) < module.disk_gib * 1024**3:
        free_gib = free / 1024**3
        raise BinariesError(
            f"the build needs {module.disk_gib} GB in {target.parent} for some minutes, "
            f"{free_gib:.1f} GB are free"
        )
    go = find_go(display, module.go)
    source, temporary = work / "module", work / "tmp"
    if any(_content(source / name) != _content(module.folder / name) for name in ("go.mod", "go.sum")):
        shutil.rmtree(target, ignore_errors=True)  # programs of other versions
        # their sources, without what only these versions need
        shutil.rmtree(work / "gomodcache", ignore_errors=True)
    for folder in (source, temporary):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(module.folder, source, dirs_exist_ok=True)
    temporary.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)
    _Build(go, source, target, _environment(go, work), display, module.flags).run(module)


@dataclass(frozen=True)
class _Program:
    """A program to build: its name, its main package, and all packages that it needs in the order of their
    imports.
    """

    name: str
    main: str
    packages: tuple[str, ...]


class _Build:
    """One build: for each program its packages in slices, then the program."""

    def __init__(
        self,
        go: Path,
        source: Path,
        target: Path,
        environment: dict[str, str],
        display: BuildDisplay,
        flags: Sequence[str],
    ) -> None:
        self._go = go
        self._flags = flags
        self._source = source
        self._work = source.parent
        self._target = target
        self._environment = environment
        self._display = display

    def run(self, module: GoModule) -> None:
        self._display.step(f"fetching the sources of {module.content}")
        programs, folders = self._list(["tool", *(f"./{name}" for name in module.own)])
        for archive in self._work.glob("gomodcache/cache/download/**/*.zip"):
            archive.unlink()  # its content is unpacked beside it
        assets = {
            path: _module_folder(self._go, path, self._source, self._environment) for path in module.assets
        }
        if self._environment["GOMODCACHE"] == str(self._work / "gomodcache"):
            delete_unused(self._work / "gomodcache", folders, set(assets.values()))
        packages = {package for program in programs for package in program.packages}
        self._display.step(f"building {module.content}", len(packages) + _UNITS_OF_A_PROGRAM * len(programs))
        compiled: set[str] = set()
        for number, program in enumerate(programs, 1):
            own = [package for package in program.packages if package not in compiled]
            needed_later = {package for later in programs[number:] for package in later.packages}
            text = f"program {number} of {len(programs)}, {program.name}"
            self._display.advance(text, 0)
            if (self._target / program.name).exists():
                own = [package for package in own if package not in needed_later]
                self._display.advance(text, len(own) + _UNITS_OF_A_PROGRAM)
            else:
                self._build(program, own, text)
                self._forget(program, needed_later)
            compiled.update(own)
        for path, wanted in module.assets.items():
            copy_assets(assets[path], wanted, self._target)

    def _list(self, wanted: list[str]) -> tuple[list[_Program], set[Path]]:
        """Return the programs, that with the fewest packages first, and the folders of all packages.

        What only the first program needs is deleted before the others are compiled.
        """
        form = '{{.ImportPath}}\t{{.Dir}}{{if eq .Name "main"}}\t{{join .Deps " "}}\t{{.Target}}{{end}}'
        listed = [line.split("\t") for line in self._go_list("-deps", "-f", form, *wanted)]
        # packages come after those that they import
        order = {package: place for place, (package, *_) in enumerate(listed)}
        programs = [
            _Program(
                Path(target).name,
                main,
                tuple(sorted(set(needed.split()) - {"unsafe"}, key=order.__getitem__)),
            )
            for main, _, needed, target in (entry for entry in listed if len(entry) > 2)
        ]
        return sorted(programs, key=lambda program: len(program.packages)), {
            Path(entry[1]) for entry in listed
        }

    def _build(self, program: _Program, packages: list[str], text: str) -> None:
        for start in range(0, len(packages), _PACKAGES_AT_A_TIME):
            some = packages[start : start + _PACKAGES_AT_A_TIME]
            self._compile(some, some[-1], len(some))
        linked = self._work / "tmp" / program.name
        self._compile(["-o", str(linked), program.main], text, _UNITS_OF_A_PROGRAM)
        linked.rename(self._target / program.name)

    def _forget(self, program: _Program, needed_later: set[str]) -> None:
        """Delete the compiled packages that no later program needs,
        unless the user keeps them in a cache of their own.
        """
        cache = self._work / "gocache"
        if self._environment["GOCACHE"] != str(cache):
            return
        for line in self._go_list(
            "-export", "-deps", *self._flags, "-f", "{{.ImportPath}} {{.Export}}", program.main
        ):
            package, _, compiled = line.partition(" ")
            if compiled and package not in needed_later:
                Path(compiled).unlink(missing_ok=True)

    def _go_list(self, *arguments: str) -> list[str]:
        listed: list[str] = []
        _run(
            [self._go, "list", *_MODULE_FLAGS, *arguments],
            self._source,
            self._environment,
            self._display.advance,
            listed,
        )
        return listed

    def _compile(self, arguments: list[str], text: str, units: int) -> None:
        """Call the compiler; what it had compiled before counts as well."""
        seen = 0

        def advance(line: str) -> None:
            nonlocal seen
            if seen < units and not line.startswith("downloading "):
                seen += 1
                self._display.advance(line)

        _run(
            [self._go, "build", "-v", *_MODULE_FLAGS, *self._flags, *arguments],
            self._source,
            self._environment,
            advance,
        )
        self._display.advance(text, units - seen)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _size(folder: Path) -> int:
    """Return how many bytes the files below a folder have: the rest of an earlier build."""
    return sum(path.stat(follow_symlinks=False).st_size for path in folder.rglob("*"))


def copy_assets(module: Path, wanted: Iterable[str], target: Path) -> None:
    """Copy files and folders of a module, with their paths within it."""
    for path in wanted:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if (module / path).is_dir():
            shutil.copytree(module / path, target / path, dirs_exist_ok=True)
        else:
            shutil.copy(module / path, target / path)


def _module_folder(go: Path, path: str, source: Path, environment: Mapping[str, str]) -> Path:
    """Return where the source of a required module is, which the build has downloaded.

    Raises
    ------
    BinariesError
        go.mod does not require the module.
    """
    command: list[str | Path] = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", path]
    found = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if found.returncode != 0 or not found.stdout.strip():
        raise BinariesError(
            f"the source of the module {path} is missing: "
            f"{found.stderr.strip()[-800:] or 'go.mod does not require it'}"
        )
    return Path(found.stdout.strip())


def _environment(go: Path, work: Path) -> dict[str, str]:
    settings = {
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "GOWORK": "off",
        "GOENV": os.environ.get("GOENV", ""),
        "GOTMPDIR": str(work / "tmp"),
        "CGO_ENABLED": "0",
        "GOCACHE": os.environ.get("GOCACHE") or str(work / "gocache"),
        "GOMODCACHE": os.environ.get("GOMODCACHE") or str(work / "gomodcache"),
        "GOPATH": str(work / "gopath"),
    }
    if not settings["GOENV"]:
        del settings["GOENV"]
    inherited = {
        key: text
        for key, text in os.environ.items()
        if key not in ("GOARCH", "GOOS", "GOEXPERIMENT", "GOROOT")
    }
    return {**inherited, **settings}


def _run(
    command: list[str | Path],
    folder: Path,
    environment: dict[str, str],
    advance: Callable[[str], None],
    output: list[str] | None = None,
) -> None:
    """Run Go, and report each package by ``advance``.
    Its other messages are for the error message, its output for ``output``.
    """
    messages: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as answer,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        watchdog = threading.Timer(_BUILD_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            assert process.stderr is not None
            for package in _packages(process.stderr, messages):
                advance(package)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
        if output is not None:
            answer.seek(0)
            output += answer.read().splitlines()
    if code != 0:
        reason = "\n".join(messages[-25:]) or f"go ended with {code}; it is ended after {_BUILD_TIMEOUT_S} s"
        raise BinariesError(f"the programs could not be built:\n{reason}")


def _packages(lines: Iterator[str], messages: list[str]) -> Iterator[str]:
    for line in map(str.rstrip, lines):
        if line.startswith("go: downloading "):
            yield line.removeprefix("go: ")
        elif re.fullmatch(r"[\w./~+-]+", line):
            yield line
        elif line:
            messages.append(line)
